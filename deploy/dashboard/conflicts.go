package main

// lost are the observations that found no room, in ten minutes. The reasons left out are
// part of ordinary life, as in deploy/alerts.yaml.
const lost = `sum by (cluster, job, instance) (
    increase(dupip_dropped_total{reason!~"interface_gone|older_than_the_ttl|no_holder_here|unanswered"}[10m])
  or
    increase(dupip_refused_packets_total{kind="ring_full"}[10m])
)`

// An address with holders on two nodes is a conflict at both, with an id of each: what is
// counted is addresses. An agent names at most 100; a node that counts more is right.
const (
	confirmed = `
max(
    count(max by (cluster, network, ip) (dupip_conflict_info{state="confirmed"} HERE))
  or
    label_replace(max(sum by (cluster, job, instance) (dupip_conflicts{state="confirmed"} HERE)), "by", "node", "", "")
)`
	suspected = `
count(
  max by (cluster, network, ip) (dupip_conflict_info{state="suspected"} HERE)
  unless max by (cluster, network, ip) (dupip_conflict_info{state="confirmed"})
) or 0 * count(dupip_build_info HERE)`
)

func rows() []row {
	return []row{
		{"Now", nowPanels()},
		{"Conflicts", conflictPanels()},
		{"Addresses", addressPanels()},
		{"Coverage", coveragePanels()},
		{"Gossip", gossipPanels()},
		{"Cost", costPanels()},
	}
}

func nowPanels() []panel {
	good, bad, warn := "green", above(1, "red"), above(1, "orange")
	return []panel{
		tile("Duplicates", "Addresses with two live holders, verified: traffic to them goes astray, so act on each (table below).",
			from(good, bad), confirmed),
		tile("Suspected", "Addresses that may be held twice and are not verified; over in seconds unless a holder cannot be asked, so worry when it lasts for minutes.",
			from(good, warn), suspected),
		tile("Nodes affected", "Nodes with a holder of a confirmed duplicate; two share an address, many point to one cause such as a range given out twice.",
			from(good, bad), `count(sum by (cluster, job, instance) (dupip_conflicts{state="confirmed"} HERE) > 0) or 0 * count(dupip_build_info HERE)`),
		tile("Agents", "Agents that answer Prometheus; it should be the number of nodes, since nobody looks where none runs.",
			from("red", above(1, "blue")), `count(`+chosen+`) or vector(0)`),
		tile("Agents down", "Agents that Prometheus knows of, on any node, and that do not answer: duplicates there are not seen.",
			from(good, warn), `
count(
    max by (cluster, job, instance) (up{cluster=~"$cluster"}) == 0
    and on (cluster, job, instance) last_over_time(dupip_node_info[1h])
  or
    max by (cluster, job, instance) (up{cluster=~"$cluster"}) == 0
    and on (cluster, job) dupip_build_info
    unless on (cluster, job) (up == 1 unless on (cluster, job, instance) dupip_build_info)
) or vector(0)`),
		tile("Blind interfaces", "Pod interfaces that are not observed, or whose packets another program may swallow first: a duplicate behind them is not found (which: row Coverage).",
			from(good, warn), `sum(dupip_interfaces{state=~"failed|shadowed|unsupported"} HERE)`),
		tile("Agents overrun", "Agents that had no room for more than ten observations in ten minutes; worry when it lasts, since duplicates are then found late or not at all.",
			from(good, warn), `count(`+lost+` > 10 HERE) or 0 * count(dupip_build_info HERE)`),
		tile("Gossip trouble", "Agents with problems, unacknowledged leases or namesakes, or that see fewer others than there are: duplicates between nodes may be missed (row Gossip).",
			from(good, warn), `
count(
  count by (cluster, job, instance) (
      dupip_gossip_problems > 0
    or
      dupip_gossip_leases_unacked > 0
    or
      dupip_gossip_namesakes > 0
    or
      dupip_gossip_members{state="alive"} < on (cluster) group_left ()
        count by (cluster) (dupip_gossip_members{state="alive"})
  ) HERE
) or 0 * count(dupip_build_info HERE)`),
	}
}

func conflictPanels() []panel {
	colors := property{"mappings", []any{map[string]any{"type": "value", "options": map[string]any{
		"confirmed": map[string]any{"color": "red", "index": 0},
		"suspected": map[string]any{"color": "orange", "index": 1},
	}}}}
	return []panel{
		// The two nodes may not agree who is first: the row is that of one of them.
		list("Open conflicts", "Each address once, with its two eldest holders, at most 200; on one of the nodes \"dupip explain ADDRESS\" says why and what to do.",
			size{width, 9}, "State", []column{
				{"ip", "Address", nil},
				{"network", "Network", nil},
				{"state", "State", []property{{"custom.cellOptions", map[string]any{"type": "color-text"}}, colors}},
				{"scope", "Scope", nil},
				{"Value #A", "Since", []property{{"unit", "dateTimeFromNow"}}},
				{"Value #B", "Holders", []property{{"unit", "short"}, {"decimals", 0}}},
				{"first_pod", "First pod", nil},
				{"first_node", "First node", nil},
				{"first_interface", "First interface", nil},
				{"second_pod", "Second pod", nil},
				{"second_node", "Second node", nil},
				{"second_interface", "Second interface", nil},
			},
			rowsOf(`
bottomk(200,
  (
    topk by (cluster, network, ip) (1, (dupip_conflict_info{state="confirmed"} * 2 or dupip_conflict_info) HERE) > bool 0
  )
  * on (cluster, network, ip) group_left ()
    min by (cluster, network, ip) (dupip_conflict_suspected_timestamp_seconds) * 1000
)`),
			rowsOf(`max by (cluster, network, ip) (dupip_conflict_holders HERE)`)),
		graph("Duplicates by scope", "Confirmed addresses, each once; \"left out\" are conflicts beyond the 100 that each agent names, told by \"dupip conflicts --cluster\".",
			size{8, 8}, "short",
			at("{{scope}}", `
count by (scope) (max by (cluster, network, ip, scope) (dupip_conflict_info{state="confirmed"} HERE))
or
0 * max by (scope) (dupip_conflicts HERE)`),
			at("left out", `sum(dupip_conflict_info_omitted HERE)`)),
		graph("Newly confirmed, in the last hour", "Addresses that became duplicates within an hour, each once; a step means that something has begun to give out addresses twice.",
			size{8, 8}, "short",
			at("addresses", `
count(
  max by (cluster, network, ip) (max_over_time(dupip_conflict_info{state="confirmed"}[1h]) HERE)
  unless max by (cluster, network, ip) (dupip_conflict_info{state="confirmed"} offset 1h)
) or 0 * count(dupip_build_info HERE)`)),
		graph("Time to detection", "From the second holder's first packet to confirmed; 1.5 s on a node and 2.5 s across nodes are aimed at, more than 5 s means packets are lost or agents starve.",
			size{8, 8}, "s",
			at("p50", `histogram_quantile(0.5, sum by (le) (rate(dupip_detection_seconds_bucket[$__rate_interval]) HERE))`),
			at("p99", `histogram_quantile(0.99, sum by (le) (rate(dupip_detection_seconds_bucket[$__rate_interval]) HERE))`)),
		graph("Suspicions and conflicts per hour", "As each node counts them, so one between two nodes counts twice; many that fade are ordinary reuse of addresses.",
			size{8, 8}, "short",
			at("suspected", `sum(rate(dupip_suspicions_total[$__rate_interval]) HERE) * 3600`),
			at("faded", `sum(rate(dupip_suspicions_faded_total[$__rate_interval]) HERE) * 3600`),
			at("confirmed, {{scope}}", `sum by (scope) (rate(dupip_conflicts_total[$__rate_interval]) HERE) * 3600`),
			at("resolved", `sum(rate(dupip_conflicts_resolved_total[$__rate_interval]) HERE) * 3600`)),
		graph("Let pass per hour", "Second holders that raised no suspicion, or cannot be confirmed: shared as the configuration has it, or forwarded by a router; worry when a reason is new.",
			size{8, 8}, "short",
			at("{{reason}}", `sum by (reason) (rate(dupip_suppressed_total[$__rate_interval]) HERE) * 3600`)),
		top("Nodes with most duplicates", "Where the confirmed duplicates are; two nodes with the same number are often a clone and its original.",
			size{8, 8}, "short", from("red"), "{{node}}", `sum by (node) (dupip_conflicts{state="confirmed"} NODE) > 0`),
	}
}
