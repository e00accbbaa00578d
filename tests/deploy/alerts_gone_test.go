package deploy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// span is when something is exported, in minutes: from the first scrape of one on, until the first of the other.
type span struct{ from, to int }

// departure is a cluster with agents that cannot be scraped any more, as Prometheus sees it. Others are in the same play.
type departure struct {
	*play
	cluster string
	// every is how often Prometheus scrapes, and offset when it begins; the play's own interval is shorter.
	every, offset time.Duration
	expected      []expectation
}

// grid divides all intervals and offsets.
const grid = 5 * time.Second

func minutes(n int) time.Duration { return time.Duration(n) * time.Minute }

// during adds a series. It ends as Prometheus ends those of a target that is gone.
func (d *departure) during(metric, labels, value string, spans ...span) {
	d.add(metric, fmt.Sprintf("cluster=%q,%s", d.cluster, labels), func(n int) string {
		at := d.length(n) - d.offset
		if at < 0 || at%d.every != 0 {
			return missing
		}
		is := missing
		for _, s := range spans {
			switch {
			case at >= minutes(s.from) && at < minutes(s.to):
				is = value
			case at == minutes(s.to):
				is = stale
			}
		}
		return is
	})
}

// agent adds what an agent exports whatever it has found.
func (d *departure) agent(target string, spans ...span) {
	d.during("dupip_conflict_info_omitted", target, "0", spans...)
	d.during("dupip_build_info", target, "1", spans...)
}

// conflict adds a conflict, as the agent of a target exports it.
func (d *departure) conflict(target, ip, state string, spans ...span) {
	d.occurrence(target, ip+"-1", "", state, spans...)
}

// occurrence adds a conflict by its id; names are more labels.
func (d *departure) occurrence(target, id, names, state string, spans ...span) {
	ip, _, _ := strings.Cut(id, "-")
	d.during("dupip_conflict_info", fmt.Sprintf(`%s,id="%s",network="default",ip="%s",state="%s",first_node="a",second_node="b"%s`, target, id, ip, state, names), "1", spans...)
}

// many adds more conflicts than have an alert each.
func (d *departure) many(target, state string, spans ...span) {
	for n := range 41 {
		d.conflict(target, fmt.Sprintf("10.0.1.%d", n), state, spans...)
	}
}

// always expects that one alert fires at each evaluation of a time, but for the interval of a scrape at its end.
func (d *departure) always(alert string, s span) {
	from, to := minutes(s.from)+d.late(), minutes(s.to)-d.every
	d.expect("sum", alert, from, to, map[string]any{"labels": "{}", "value": int((to - from) / evaluation)})
	d.expect("count", alert, from, to, map[string]any{"labels": "{}", "value": 1})
}

// never expects that an alert fires at no evaluation of a time.
func (d *departure) never(alert string, s span) {
	d.expect("sum", alert, minutes(s.from)+d.late(), minutes(s.to))
}

func (d *departure) expect(of, alert string, from, to time.Duration, want ...map[string]any) {
	d.expected = append(d.expected, expectation{
		expr: fmt.Sprintf(`%s(count_over_time(ALERTS{alertstate="firing",cluster=%q,%s}[%v]))`, of, d.cluster, alert, to-from-time.Second),
		at:   to, want: want,
	})
}

// late is when the first evaluation is that sees what a scrape of a minute has found.
func (d *departure) late() time.Duration {
	return (d.offset + evaluation - 1).Truncate(evaluation)
}

const (
	a, b      = `instance="a:9951"`, `instance="b:9951"`
	open      = `alertname="DupipDuplicateAddress",ip="10.0.0.7"`
	together  = `alertname="DupipDuplicateAddresses"`
	suspected = `alertname="DupipAddressesSuspected"`
	nearlyUp  = `alertname="DupipRangeNearlyUsedUp"`
	ended     = `alertname=~"DupipDuplicateAddress|DupipDuplicateAddresses",ip!="10.0.0.7"`
)

// departures are agents that cannot be scraped any more. What they had at their last scrape counts for five minutes from then.
var departures = map[string]func(d *departure){
	"what has ended, and then the agent": func(d *departure) {
		d.agent(a, span{0, 5})
		d.many(a, "confirmed", span{0, 3})
		d.always(together, span{0, 3})
		d.never(ended, span{3, 20})
	},
	"the agent of an open conflict, and what has ended before": func(d *departure) {
		d.agent(a, span{0, 5})
		d.many(a, "confirmed", span{0, 3})
		d.conflict(a, "10.0.0.7", "confirmed", span{0, 5})
		d.never(ended, span{3, 20})
		d.always(open, span{3, 10})
		d.never(open, span{10, 20})
	},
	"many open conflicts": func(d *departure) {
		d.agent(a, span{0, 5})
		d.many(a, "confirmed", span{0, 5})
		d.always(together, span{0, 10})
		d.never(ended, span{10, 20})
	},
	"some scrapes": func(d *departure) {
		up := []span{{0, 4}, {5, 6}, {8, 21}}
		d.agent(a, up...)
		d.many(a, "confirmed", span{0, 2})
		d.conflict(a, "10.0.0.7", "confirmed", up...)
		d.never(ended, span{2, 20})
		d.always(open, span{2, 20})
	},
	// The node's pods go to other nodes, by which its conflicts end. Then it is removed.
	"a node that was drained": func(d *departure) {
		d.agent(a, span{0, 4})
		d.agent(b, span{0, 21})
		d.many(a, "confirmed", span{0, 2})
		d.many(b, "confirmed", span{0, 2})
		d.never(ended, span{2, 20})
	},
	"one of two agents with the same conflicts": func(d *departure) {
		d.agent(a, span{0, 4})
		d.agent(b, span{0, 21})
		d.many(a, "confirmed", span{0, 2})
		d.many(b, "confirmed", span{0, 3})
		d.conflict(a, "10.0.0.7", "confirmed", span{0, 4})
		d.conflict(b, "10.0.0.7", "confirmed", span{0, 15})
		d.always(together, span{0, 3})
		d.never(ended, span{3, 20})
		d.always(open, span{3, 15})
		d.never(open, span{15, 20})
	},
	"both agents, one after the other": func(d *departure) {
		d.agent(a, span{0, 4})
		d.agent(b, span{0, 6})
		d.many(a, "confirmed", span{0, 2})
		d.many(b, "confirmed", span{0, 2})
		d.conflict(a, "10.0.0.7", "confirmed", span{0, 3}) // and the other agent sees its end last
		d.conflict(b, "10.0.0.7", "confirmed", span{0, 5})
		d.never(ended, span{2, 20})
		d.always(open, span{2, 5})
		d.never(open, span{5, 20})
	},
	// Until the next agent has verified them, the conflicts of the last one count.
	"an agent's pod, and the next one verifies": func(d *departure) {
		d.agent(a+`,pod="old"`, span{0, 4})
		d.agent(a+`,pod="new"`, span{5, 21})
		d.many(a+`,pod="old"`, "confirmed", span{0, 2})
		d.conflict(a+`,pod="old"`, "10.0.0.7", "confirmed", span{0, 4})
		d.conflict(a+`,pod="new"`, "10.0.0.7", "suspected", span{5, 6})
		d.conflict(a+`,pod="new"`, "10.0.0.7", "confirmed", span{6, 12})
		d.never(ended, span{2, 20})
		d.always(open, span{2, 12})
		d.never(open, span{12, 20})
	},
	"an agent, and the next one of the node has another instance": func(d *departure) {
		d.agent(a, span{0, 4})
		d.agent(b, span{5, 21})
		d.many(a, "confirmed", span{0, 2})
		d.conflict(a, "10.0.0.7", "confirmed", span{0, 4})
		d.conflict(b, "10.0.0.7", "suspected", span{5, 6})
		d.conflict(b, "10.0.0.7", "confirmed", span{6, 12})
		d.never(ended, span{2, 20})
		d.always(open, span{2, 12})
		d.never(open, span{12, 20})
	},
	// It ends each time before it has verified the conflict.
	"an agent that keeps restarting": func(d *departure) {
		d.agent(a, span{0, 2}, span{3, 4}, span{5, 21})
		d.conflict(a, "10.0.0.7", "confirmed", span{0, 2}, span{6, 12})
		d.conflict(a, "10.0.0.7", "suspected", span{3, 4}, span{5, 6})
		d.always(open, span{0, 12})
		d.never(open, span{12, 20})
	},
	"an agent that finds its conflicts ended": func(d *departure) {
		d.agent(a, span{0, 4}, span{5, 7})
		d.conflict(a, "10.0.0.7", "confirmed", span{0, 4})
		d.conflict(a, "10.0.0.7", "suspected", span{5, 6})
		d.always(open, span{0, 6})
		d.never(open, span{6, 20})
	},
	// A restart does not end an alert that has waited for ten minutes.
	"the agent of many suspicions": func(d *departure) {
		d.agent(a, span{0, 14}, span{16, 21})
		d.many(a, "suspected", span{0, 14}, span{16, 21})
		d.always(suspected, span{11, 20})
		d.never(suspected, span{0, 9})
	},
	"the agent of a range that is nearly used up": func(d *departure) {
		d.agent(a, span{0, 17}, span{19, 21})
		d.during("dupip_ipam_range_left_ratio", a+`,cni_network="pods"`, "0.05", span{0, 17}, span{19, 21})
		d.always(nearlyUp, span{16, 20})
	},
}

// Only what was there at the last scrape of an agent counts, however often and whenever Prometheus scrapes.
func TestAlertsOfAgentsThatAreGone(t *testing.T) {
	t.Parallel()
	playDepartures(t, departures)
}

// playDepartures plays each in a cluster of its own, all at the same time.
func playDepartures(t *testing.T, all map[string]func(d *departure)) {
	t.Helper()
	for _, scraped := range []struct{ every, offset time.Duration }{
		{5 * time.Second, 0},
		{15 * time.Second, 0},
		{15 * time.Second, 5 * time.Second},
		{15 * time.Second, 10 * time.Second},
		{30 * time.Second, 20 * time.Second},
		{time.Minute, 35 * time.Second},
	} {
		t.Run(fmt.Sprintf("every %v from %v on", scraped.every, scraped.offset), func(t *testing.T) {
			t.Parallel()
			p := &play{every: grid, scrapes: int(minutes(21) / grid)}
			var expected []expectation
			for cluster, set := range all {
				d := &departure{play: p, cluster: cluster, every: scraped.every, offset: scraped.offset}
				set(d)
				expected = append(expected, d.expected...)
			}
			p.check(t, "departures", expected...)
		})
	}
}

// A machine that is shut down stops its container runtime, its network and its agent. What the agent says last has been so for
// moments only, and is no reason for an alert when no other scrapes are left in the time that a rule looks back on.
func TestNoAlertsOfWhatAgentsSayLast(t *testing.T) {
	t.Parallel()
	const gone = 270 // scrapes: longer than rules look back
	p := &play{scrapes: 2 * gone}
	for n := range 3 {
		stays := n == 2
		// After then, the metric is last for some scrapes. Then the agent is gone.
		one := func(metric, labels, then string, scrapes int, last string) {
			p.add(metric, strings.TrimSuffix(fmt.Sprintf(`instance="n%d:9951",job="dupip",%s`, n, labels), ","), func(s int) string {
				switch {
				case s < gone-scrapes, stays:
					return then
				case s < gone:
					return last
				case s == gone:
					return stale
				}
				return missing
			})
		}
		one("up", "", "1", 0, "")
		for _, u := range ups {
			one(u.metric, u.labels, u.then, 4, u.begins)
		}
		one("dupip_interfaces", `state="unsupported"`, "0", 4, "1")
		one("dupip_dad_failed_addresses", "", "0", 4, "1")
		one("dupip_ipam_range_left_ratio", `cni_network="pods"`, "0.5", 4, "0.05")
		one("dupip_audit_findings", `kind="unheld"`, "0", 4, "1")
		one("dupip_audit_findings", `kind="unreserved"`, "0", 2, "1")
		if !stays {
			one("dupip_gossip_members", `state="alive"`, "3", 12, "1")
		}
	}
	p.add("dupip_gossip_members", `instance="n2:9951",job="dupip",state="alive"`, func(s int) string { return at(s, gone, "3", 0, "", "1") })
	p.check(t, "last words", p.silent())
}
