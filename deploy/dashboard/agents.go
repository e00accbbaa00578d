package main

// spread is a figure of each agent as two lines: of 5,000 nodes one sees the worst and
// the ordinary.
func spread(text string) []target {
	return []target{
		at("highest", "max("+text+" HERE)"),
		at("median", "quantile(0.5, "+text+" HERE)"),
	}
}

func addressPanels() []panel {
	return []panel{
		area("Addresses by evidence", "Addresses with their holders, by how they are known; a fall without pods going away means that agents have gone blind.",
			size{8, 8}, "short", at("{{evidence}}", `sum by (evidence) (dupip_bindings HERE)`)),
		graph("Addresses per node", "The fullest node and the middle one; tables are bounded, so worry above some thousand.",
			size{8, 8}, "short", spread(`sum by (cluster, job, instance) (dupip_bindings)`)...),
		graph("Questions into pods", "Solicitations a second: verify follows suspicions, refresh keeps silent pods' addresses; worry when verify stays high.",
			size{8, 8}, "cps", at("{{purpose}}", `sum by (purpose) (rate(dupip_solicitations_total[$__rate_interval]) HERE)`)),
	}
}

func coveragePanels() []panel {
	return []panel{
		area("Interfaces by state", "Pod interfaces; attached are observed, waiting are not yet, ignored as the configuration says; the rest but uplinks is where duplicates go unseen.",
			size{8, 8}, "short", at("{{state}}", `sum by (state) (dupip_interfaces{state!="unseen_netns"} HERE)`)),
		graph("Blind interfaces by state", "Not observed, shadowed by another program, or in a netns that cannot be seen; \"dupip status -o wide\" on the node says which and why.",
			size{8, 8}, "short", at("{{state}}", `sum by (state) (dupip_interfaces{state=~"failed|shadowed|unsupported|unseen_netns"} HERE)`)),
		top("Nodes with most blind interfaces", "Where to look first; one node is its own trouble, all of them a plugin or a kernel that is not supported.",
			size{8, 8}, "short", from("orange"), "{{node}}: {{state}}",
			`sum by (node, state) (dupip_interfaces{state=~"failed|shadowed|unsupported"} NODE) > 0`),
		graph("Refused packets", "Packets a second that made no record because their pod went over its limits; ring_full is the agent that does not keep up: there worry.",
			size{8, 8}, "pps", at("{{kind}}", `sum by (kind) (rate(dupip_refused_packets_total[$__rate_interval]) HERE)`)),
		top("Interfaces with most refused packets", "Pods that use more addresses than are looked at, in packets a second over five minutes: a router, or one that spoofs.",
			size{8, 8}, "pps", from("orange"), "{{node}}: {{interface}} {{source_pod}}",
			`sum by (node, interface, source_pod) (rate(dupip_interface_refused_packets_total{interface!=""}[5m]) NODE) > 0`),
		graph("Dropped, by reason", "What found no room in agents' queues and tables, a second; table_full and its like mean duplicates may be missed, interface_gone is ordinary.",
			size{8, 8}, "cps", at("{{reason}}", `sum by (reason) (rate(dupip_dropped_total[$__rate_interval]) HERE)`)),
		graph("Agents with trouble of their own", "Without the runtime pods have no names; a refused configuration leaves the former in force; an unwritten state is forgotten at a restart.",
			size{8, 8}, "short",
			at("no container runtime", `sum(1 - dupip_pods_runtime_connected HERE)`),
			at("configuration refused", `sum(1 - dupip_config_last_reload_success HERE)`),
			at("state not written", `sum(1 - dupip_state_last_write_success HERE)`),
			at("metrics incomplete", `sum((sum by (cluster, job, instance) (increase(dupip_scrape_errors_total[10m])) > bool 0) HERE)`),
			at("lost notifications", `sum((increase(dupip_netlink_overruns_total[10m]) > bool 0) HERE)`)),
		graph("Records that wait", "Records for which the agent does not know the interface yet; some at pods' starts, worry when the highest stays up.",
			size{8, 8}, "short", spread(`dupip_records_pending`)...),
		graph("Pods known by name", "Network namespaces with a pod's name; nothing is missed without, but alerts name namespaces then.",
			size{8, 8}, "short", at("pods", `sum(dupip_pods_known HERE)`)),
	}
}

func gossipPanels() []panel {
	return []panel{
		graph("Members as agents see them", "Alive as the agent with most and with fewest sees them, and as many as answer Prometheus; where the lines part the cluster is cut.",
			size{8, 8}, "short",
			at("alive, most", `max(dupip_gossip_members{state="alive"} HERE)`),
			at("alive, fewest", `min(dupip_gossip_members{state="alive"} HERE)`),
			at("answer Prometheus", `max(count by (cluster) (dupip_gossip_members{state="alive"}) and on (cluster) `+chosen+`)`)),
		graph("Members not alive", "As the agent with most sees them: suspect lasts for seconds, dead until a node is forgotten, left is an agent that was stopped in order.",
			size{8, 8}, "short", at("{{state}}", `max by (state) (dupip_gossip_members{state!="alive"} HERE)`)),
		graph("Problems", "Agents with problems that \"dupip status\" names, that share their node's name with another, or whose leases are not acknowledged; worry when it lasts for minutes.",
			size{8, 8}, "short",
			at("problems", `sum((dupip_gossip_problems > bool 0) HERE)`),
			at("namesakes", `sum((dupip_gossip_namesakes > bool 0) HERE)`),
			at("leases unacknowledged", `sum((dupip_gossip_leases_unacked > bool 0) HERE)`)),
		graph("Leases not acknowledged", "Addresses that were told to keepers in vain for some seconds; while it stays up duplicates of them on other nodes may be missed.",
			size{8, 8}, "short",
			at("all agents", `sum(dupip_gossip_leases_unacked HERE)`),
			at("highest", `max(dupip_gossip_leases_unacked HERE)`)),
		graph("Leases told and kept", "Addresses each node tells to keepers, and keeps for all; kept should be near the same on all nodes, three times told.",
			size{8, 8}, "short",
			at("told, highest", `max(dupip_gossip_leases HERE)`),
			at("told, median", `quantile(0.5, dupip_gossip_leases HERE)`),
			at("kept, highest", `max(dupip_gossip_leases_kept HERE)`),
			at("kept, median", `quantile(0.5, dupip_gossip_leases_kept HERE)`)),
		graph("Encryption", "Agents with and without a gossip key; both at once is a roll-out or a mistake, since they do not understand each other.",
			size{8, 8}, "short",
			at("encrypted", `sum(dupip_gossip_encrypted HERE)`),
			at("not encrypted", `sum(1 - dupip_gossip_encrypted HERE)`)),
		graph("Messages sent", "A second, by all chosen agents; leases and acks are the steady part, rival, ask and verified follow suspicions.",
			size{8, 8}, "cps", at("{{type}}", `sum by (type) (rate(dupip_gossip_messages_sent_total[$__rate_interval]) HERE)`)),
		graph("Messages received", "A second, by all chosen agents; far less than sent is loss on the way.",
			size{8, 8}, "cps", at("{{type}}", `sum by (type) (rate(dupip_gossip_messages_received_total[$__rate_interval]) HERE)`)),
		graph("Messages dropped, by reason", "What was not taken in or not sent, a second; unknown members pass after a restart, full inboxes are overload, forged or broken ones are not ours.",
			size{8, 8}, "cps", at("{{reason}}", `sum by (reason) (rate(dupip_gossip_dropped_total[$__rate_interval]) HERE)`)),
	}
}

func costPanels() []panel {
	memory := from("green", above(60<<20, "orange"), above(100<<20, "red"))
	return []panel{
		graph("CPU", "Share of one core that an agent takes; half a percent is usual with 250 idle pods, worry above a tenth of a core.",
			size{8, 8}, "percentunit", spread(`rate(process_cpu_seconds_total[$__rate_interval])`)...),
		graph("Memory", "Resident memory of an agent; 40 MB are aimed at with 250 pods, 60 MB in a cluster of 5,000 nodes, steady growth is a leak.",
			size{8, 8}, "bytes", spread(`process_resident_memory_bytes`)...),
		graph("Goroutines and open files", "Of an agent; both should stay level, growth is a leak.",
			size{8, 8}, "short",
			at("goroutines, highest", `max(go_goroutines HERE)`),
			at("goroutines, median", `quantile(0.5, go_goroutines HERE)`),
			at("open files, highest", `max(process_open_fds HERE)`),
			at("open files, median", `quantile(0.5, process_open_fds HERE)`)),
		top("Most CPU", "The ten nodes whose agents take most of a core, over five minutes; busy pods or suspicions there explain it.",
			size{8, 8}, "percentunit", from("green", above(0.1, "orange"), above(0.5, "red")), "{{node}}",
			`max by (node) (rate(process_cpu_seconds_total[5m]) NODE)`),
		top("Most memory", "The ten nodes whose agents take most memory; many pods there explain it.",
			size{8, 8}, "bytes", memory, "{{node}}", `max by (node) (process_resident_memory_bytes NODE)`),
		graph("State on disk", "Size of an agent's state, which holds the last 1,000 conflicts; bounded, so worry only when it is not written (row Coverage).",
			size{8, 8}, "bytes", spread(`dupip_state_size_bytes`)...),
		area("Versions", "Agents by version; more than one is an upgrade under way, or one that is stuck.",
			size{8, 8}, "short", at("{{version}}", `count by (version) (dupip_build_info HERE)`)),
		area("Ways to observe", "Agents by how they attach to interfaces; tc instead of tcx is a kernel older than 6.6.",
			size{8, 8}, "short", at("{{attach}}", `count by (attach) (`+chosen+`)`)),
		graph("Agents started", "Agents that began within the last ten minutes; one by one is an upgrade, again and again the same is a crash.",
			size{8, 8}, "short", at("agents", `sum((time() - process_start_time_seconds < bool 600) HERE)`)),
	}
}
