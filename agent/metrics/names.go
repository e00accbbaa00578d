package metrics

import "github.com/prometheus/client_golang/prometheus"

// metric is one metric name with its type, help and labels. Alert rules and dashboards rely on names and labels.
type metric struct {
	name string
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func gauge(name, help string, labels ...string) metric {
	return metric{name, prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue}
}

func counter(name, help string, labels ...string) metric {
	return metric{name, prometheus.NewDesc(name, help, labels, nil), prometheus.CounterValue}
}

// Conflicts and suspicions, from the detector.
var (
	conflicts = gauge("dupip_conflicts",
		"Open conflicts, suspected or confirmed, that involve this node.", "state", "scope")
	drills = gauge("dupip_drills",
		"Open conflicts of addresses in 192.0.2.0/24, which are drills. No other metric of conflicts counts them.", "state")
	conflictInfo = gauge("dupip_conflict_info",
		"An open conflict with its two oldest holders, always 1. At most 100: confirmed ones first, then the oldest. The number at the end of id is 1 or 2, by turns.",
		"id", "network", "ip", "state", "scope",
		"first_pod", "first_netns", "first_interface", "first_mac", "first_node",
		"second_pod", "second_netns", "second_interface", "second_mac", "second_node")
	conflictInfoOmitted = gauge("dupip_conflict_info_omitted",
		"Open conflicts without series of their own, because there are more than 100, or one pair of holders had 200 in ten minutes.")
	conflictHolderInfo = gauge("dupip_conflict_holder_info",
		"With --metrics-holders on: a pod that has the address of a confirmed conflict, always 1. At most 8 of a conflict.",
		"network", "ip", "holder_namespace", "holder_pod")
	conflictHolders = gauge("dupip_conflict_holders",
		"Holders of the address of an open conflict.", "id", "network", "ip")
	conflictSuspected = gauge("dupip_conflict_suspected_timestamp_seconds",
		"When an open conflict was suspected first.", "id", "network", "ip")
	conflictsTotal = counter("dupip_conflicts_total",
		"Conflicts that were confirmed.", "scope")
	conflictsResolved = counter("dupip_conflicts_resolved_total",
		"Confirmed conflicts that have ended.")
	suspicions = counter("dupip_suspicions_total",
		"Suspected conflicts: addresses with two live holders, not verified yet.")
	suspicionsFaded = counter("dupip_suspicions_faded_total",
		"Suspected conflicts that ended without being confirmed, mostly because an address was reused.")
	overdue = counter("dupip_overdue_total",
		"Deadlines that were still due when all was done: 0, unless the detector has a fault.")
	bindings = gauge("dupip_bindings",
		"Holders of addresses, by the evidence for them.", "evidence")
	// The buckets are close together around the goals for --min-overlap 1s: 1.5 s on one node, 2.5 s
	// across nodes.
	detectionSeconds = prometheus.HistogramOpts{
		Name:    "dupip_detection_seconds",
		Help:    "Time from the second holder's first packet until the conflict was confirmed.",
		Buckets: []float64{0.25, 0.5, 1, 1.1, 1.25, 1.5, 1.75, 2, 2.5, 3, 5, 10, 30, 60},
	}
)

// Coverage, and packets that made no record, from the interfaces.
var (
	interfaces = gauge("dupip_interfaces",
		"Pod interfaces by state; unseen_netns, node_only (compared on this node only), moved (by the pod, into another netns) and renamed count interfaces again.", "state")
	dadFailed = gauge("dupip_dad_failed_addresses",
		"Addresses of pods whose IPv6 duplicate address detection failed: their kernels do not use them.")
	hostOmitted = gauge("dupip_host_addresses_omitted",
		"The node's own addresses that are not compared with those of pods, because there are more than 4,096, or a quarter of limits.bindings; each counts once in each network.")
	refusedPackets = counter("dupip_refused_packets_total",
		"Packets that made no record, because they exceeded an interface's limits or the ring was full.", "kind")
	interfaceRefusedPackets = counter("dupip_interface_refused_packets_total",
		"Packets that made no record, for the 20 interfaces with most.",
		"interface", "netns", "source_pod", "kind")
)

// The agent's own work and limits.
var (
	dropped = counter("dupip_dropped_total",
		"Records, bindings, probes and requests that the agent dropped, mostly because a queue or table was full.", "reason")
	leftOut = counter("dupip_left_out_total",
		"What was left out because there was too much of it, by what it was; the same thing counts each time.", "reason")
	suppressed = counter("dupip_suppressed_total",
		"Suspicions that were not raised although an address has several holders, or not confirmed because of a live migration, by reason.", "reason")
	solicitations = counter("dupip_solicitations_total",
		"Probes sent into pods: to verify a suspicion, or to refresh a silent binding.", "purpose")
	recordsPending = gauge("dupip_records_pending",
		"Records that wait for their interface to be scanned.")
	netlinkOverruns = counter("dupip_netlink_overruns_total",
		"Times that netlink events were lost. After each the agent lists all interfaces or scans all namespaces again.")
	resyncFound = counter("dupip_resync_found_total",
		"Changes that no netlink event told of, so that a list of everything found them up to 30 s late, by kind.", "kind")
)

// The other nodes' agents, and what is sent to them.
var (
	gossipMembers = gauge("dupip_gossip_members",
		"Agents of the cluster as this one sees them, itself included, by state.", "state")
	gossipReporters = gauge("dupip_gossip_reporters",
		"Reporters that are alive: members that write Events. dupip_gossip_members does not count them.")
	gossipNamesakes = gauge("dupip_gossip_namesakes",
		"Live agents whose node name another live agent has, too.")
	gossipLeases = gauge("dupip_gossip_leases",
		"Bindings of this node that are sent to their keepers.")
	gossipUnacked = gauge("dupip_gossip_leases_unacked",
		"Bindings of this node that a keeper has not acknowledged for more than a few seconds.")
	gossipKept = gauge("dupip_gossip_leases_kept",
		"Bindings of all nodes that this agent holds as a keeper.")
	gossipSent = counter("dupip_gossip_messages_sent_total",
		"Messages sent to other agents.", "type")
	gossipReceived = counter("dupip_gossip_messages_received_total",
		"Messages received from other agents.", "type")
	gossipDropped = counter("dupip_gossip_dropped_total",
		"Messages from other agents that were not accepted, or to other agents that were not sent.", "reason")
	gossipProblems = gauge("dupip_gossip_problems",
		"Current problems of gossip; dupip status lists them.")
)

// The container runtime, the state on disk, the configuration.
var (
	podsConnected = gauge("dupip_pods_runtime_connected",
		"Whether the container runtime answers, 1 or 0; without it pods have no names.")
	podsKnown = gauge("dupip_pods_known",
		"Network namespaces with a pod's name.")
	stateSuccess = gauge("dupip_state_last_write_success",
		"Whether the latest write of the state succeeded, 1 or 0.")
	stateTimestamp = gauge("dupip_state_last_write_timestamp_seconds",
		"When the state was written last. It is written only after changes.")
	stateSize = gauge("dupip_state_size_bytes",
		"Size of the state on disk.")
	configSuccess = gauge("dupip_config_last_reload_success",
		"Whether the configuration file was valid when it was read last, 1 or 0; if not, the previous content stays active.")
	configTimestamp = gauge("dupip_config_last_reload_timestamp_seconds",
		"When the active configuration was read.")
)

// Whom the agent itself tells of conflicts.
var notifications = counter("dupip_notifications_total",
	"Notifications about conflicts, by whom they are to and what became of them. An alert counts each time that it is sent.", "to", "result")

// The books: what IPAM has reserved.
var (
	auditFindings = gauge("dupip_audit_findings",
		"Addresses of which the node's books and the wire say different things, by kind: unreserved and mismatched ones will collide, in_conflict ones were such and have collided, unheld ones leaked, packets to misrouted ones go to another node, those to diverted ones elsewhere by the node's own kernel, two-nodes are ones that another node has, too, and strangers answer for others.", "kind")
	rangeLeft = gauge("dupip_ipam_range_left_ratio",
		"Part of a network's address range that is not reserved, from 0 to 1.", "book", "cni_network")
)

// The agent's identity, and whether scrapes are complete.
var (
	buildInfo = gauge("dupip_build_info",
		"The build of this agent, always 1.", "version", "go_version", "arch")
	nodeInfo = gauge("dupip_node_info",
		"The node this agent runs on and how it observes, always 1.", "node", "boot_id", "attach")
	scrapeErrors = counter("dupip_scrape_errors_total",
		"Scrapes that lack the metrics of the source, because it failed or took too long.", "source")
)
