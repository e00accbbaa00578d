package metrics

// The names of all metrics: a contract with alert rules and dashboards.
const (
	// Conflicts and suspicions, from the detector.
	Conflicts                  = "dupip_conflicts"
	ConflictInfo               = "dupip_conflict_info"
	ConflictInfoOmitted        = "dupip_conflict_info_omitted"
	ConflictHolders            = "dupip_conflict_holders"
	ConflictSuspectedTimestamp = "dupip_conflict_suspected_timestamp_seconds"
	ConflictsTotal             = "dupip_conflicts_total"
	ConflictsResolvedTotal     = "dupip_conflicts_resolved_total"
	SuspicionsTotal            = "dupip_suspicions_total"
	SuspicionsFadedTotal       = "dupip_suspicions_faded_total"
	DetectionSeconds           = "dupip_detection_seconds"
	Bindings                   = "dupip_bindings"

	// Coverage, and packets that made no record, from the interfaces.
	Interfaces                   = "dupip_interfaces"
	RefusedPacketsTotal          = "dupip_refused_packets_total"
	InterfaceRefusedPacketsTotal = "dupip_interface_refused_packets_total"

	// The agent's own work and bounds.
	DroppedTotal         = "dupip_dropped_total"
	SuppressedTotal      = "dupip_suppressed_total"
	SolicitationsTotal   = "dupip_solicitations_total"
	RecordsPending       = "dupip_records_pending"
	NetlinkOverrunsTotal = "dupip_netlink_overruns_total"

	// The other nodes' agents, and what is told to them.
	GossipMembers               = "dupip_gossip_members"
	GossipNamesakes             = "dupip_gossip_namesakes"
	GossipLeases                = "dupip_gossip_leases"
	GossipLeasesUnacked         = "dupip_gossip_leases_unacked"
	GossipLeasesKept            = "dupip_gossip_leases_kept"
	GossipMessagesSentTotal     = "dupip_gossip_messages_sent_total"
	GossipMessagesReceivedTotal = "dupip_gossip_messages_received_total"
	GossipDroppedTotal          = "dupip_gossip_dropped_total"
	GossipEncrypted             = "dupip_gossip_encrypted"
	GossipProblems              = "dupip_gossip_problems"

	// The container runtime, the state on disk, the configuration.
	PodsRuntimeConnected      = "dupip_pods_runtime_connected"
	PodsKnown                 = "dupip_pods_known"
	StateLastWriteSuccess     = "dupip_state_last_write_success"
	StateLastWriteTimestamp   = "dupip_state_last_write_timestamp_seconds"
	StateSizeBytes            = "dupip_state_size_bytes"
	ConfigLastReloadSuccess   = "dupip_config_last_reload_success"
	ConfigLastReloadTimestamp = "dupip_config_last_reload_timestamp_seconds"

	// Who this is, and whether the page is whole.
	BuildInfo         = "dupip_build_info"
	NodeInfo          = "dupip_node_info"
	ScrapeErrorsTotal = "dupip_scrape_errors_total"
)
