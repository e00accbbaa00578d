package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/dupip/dupip/cmd/reporter/kube"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

const (
	// acksEvery is how often the ConfigMap is read; toldAgain how often agents are told again, because some may have been away.
	acksEvery, toldAgain = 5 * time.Second, 2 * time.Minute
	// tellTime is how long agents may take to answer.
	tellTime = 5 * time.Second
)

// acks tells the agents who works on conflicts, as a ConfigMap says.
type acks struct {
	log             *slog.Logger
	api             *kube.Client
	namespace, name string
	leads           func() bool
	ask             func(context.Context, cluster.Query, func(cluster.Member, []byte) error) ([]cluster.Member, error)
	told            map[document.SharedAck]time.Time
	failed          bool
}

// run reads it until ctx ends, while this replica has the Lease.
func (a *acks) run(ctx context.Context) {
	for ticks := time.Tick(acksEvery); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		}
		if a.leads() {
			a.look(ctx)
		}
	}
}

// look tells what is new, or has to be told again.
func (a *acks) look(ctx context.Context) {
	data, err := a.api.ConfigMap(ctx, a.namespace, a.name)
	if failed := err != nil; failed != a.failed {
		if a.failed = failed; failed {
			a.log.Warn("who works on conflicts cannot be read", "configMap", a.name, "error", err)
		}
	}
	if err != nil {
		return
	}
	now := time.Now()
	list, invalid := document.SharedAcks(data, now)
	if invalid > 0 {
		a.log.Debug("acknowledgements are invalid, or too many", "number", invalid)
	}
	told := make(map[document.SharedAck]time.Time)
	for _, s := range list {
		if told[s] = a.told[s]; now.Sub(told[s]) < toldAgain {
			continue
		}
		told[s] = now
		a.tell(ctx, s, now)
	}
	a.told = told
}

// tell tells all agents. Those that have no conflict of the address forget it.
func (a *acks) tell(ctx context.Context, s document.SharedAck, now time.Time) {
	ctx, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	ack := cluster.Ack{By: s.By, Why: s.Why, Seconds: s.Seconds, Age: int(max(now.Sub(s.At), 0) / time.Second)}
	missing, err := a.ask(ctx, cluster.Query{Kind: cluster.QueryAck, IP: s.IP, Only: cluster.Only{Network: s.Network}, Ack: ack},
		func(cluster.Member, []byte) error { return nil })
	if err != nil || len(missing) > 0 {
		a.log.Debug("not all agents were told who works on a conflict", "ip", s.IP, "missing", len(missing), "error", err)
	}
}
