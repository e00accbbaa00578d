package metrics

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dupip/dupip/detector"
)

var (
	droppedDesc = describe(DroppedTotal,
		"What found no room in one of the agent's queues and tables.", "reason")
	suppressedDesc = describe(SuppressedTotal,
		"Second holders that raised no suspicion, or cannot be confirmed, and why.", "reason")
	solicitationsDesc = describe(SolicitationsTotal,
		"Questions sent into pods: to verify a suspicion, or to refresh a silent binding.", "purpose")
	recordsPendingDesc = describe(RecordsPending,
		"Records that wait until more is known of their interface.")
	netlinkOverrunsDesc = describe(NetlinkOverrunsTotal,
		"Times the kernel had more changes to tell than the agent could take; each leads to a full resync.")
)

func agentSource(ask func(context.Context) (AgentStats, error)) *source[AgentStats] {
	return &source[AgentStats]{
		name: "agent",
		descs: []*prometheus.Desc{
			droppedDesc, suppressedDesc, solicitationsDesc, recordsPendingDesc, netlinkOverrunsDesc,
		},
		export:   exportAgent,
		question: question[AgentStats]{ask: ask},
	}
}

func exportAgent(s AgentStats, out sink) {
	for reason, n := range byWord(s.Dropped) {
		out.counter(droppedDesc, n, reason)
	}
	for reason, n := range byWord(s.Suppressed) {
		out.counter(suppressedDesc, n, reason)
	}
	if s.Solicitations != nil {
		for purpose := detector.Verify; purpose <= detector.Refresh; purpose++ {
			out.counter(solicitationsDesc, s.Solicitations[purpose], purpose.String())
		}
	}
	out.gauge(recordsPendingDesc, float64(s.Pending))
	out.counter(netlinkOverrunsDesc, s.NetlinkOverruns)
}
