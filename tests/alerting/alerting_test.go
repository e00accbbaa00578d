// Package alerting tests the whole path from a pod's packet to an alert's receiver: real agents on
// nodes of the lab, a real Prometheus with the deployed rules, a real Alertmanager with the
// configuration from the runbook, and a webhook that receives the alerts.
//
// It owns those processes and ends them. The cases of promtool in package deploy test which rule
// fires when; this package tests that the parts fit together, and how long an alert takes.
package alerting

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dupip/dupip/tests/cri"
	"github.com/dupip/dupip/tests/lab"
)

// patience is how long anything that has to happen may take on a busy machine. Prometheus sends an alert again after a minute: until then
// Alertmanager has what it said first, perhaps of some addresses only.
var patience = lab.Patience(90 * time.Second)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

// A pod's address is given out again on another node. One notification names both pods, and one
// reports the end.
func TestFromPacketToAlert(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	runtimes := []*cri.Runtime{newRuntime(l), newRuntime(l)}
	l.Do(each(runtimes, func(r *cri.Runtime) error { return r.Start(t.Context()) }))
	var agents []*lab.Agent
	for _, r := range runtimes {
		agents = append(agents, startAgent(l, r.Node, "--cri-socket", r.Socket, "--metrics-holders", "on"))
	}
	agents = append(agents, startAgent(l, l.Node("")))
	l.WaitCluster(agents...)
	d := newMonitoring(l, agents, 1)

	older := runPod(l, runtimes[0], "web-0")
	ip := older.IPs[0]
	_, err := agents[0].Client.WaitBinding(t.Context(), ip, func(b lab.Binding) bool { return b.Pod != nil })
	l.Do(err)
	watches := []*lab.Watch{l.Watch(agents[0]), l.Watch(agents[1])}
	newcomer := runPod(l, runtimes[1], "web-1")
	if newcomer.IPs[0] != ip {
		t.Fatalf("the newcomer has %v, want the older pod's %v", newcomer.IPs, older.IPs)
	}

	var firing, held time.Time
	var g group
	d.eventually("firing", func() error {
		err := d.yields(`ALERTS{alertname="DupipDuplicateAddress",alertstate="firing"}`, 1)
		firing = time.Now()
		return err
	})
	d.eventually("one alert with the names of both pods", func() error {
		g, err = d.oneGroup("DupipDuplicateAddress")
		if held.IsZero() && err == nil {
			held = time.Now()
		}
		if err == nil {
			err = names(g.Alerts[0], ip, older, newcomer, agents[:2])
		}
		return err
	})
	d.eventually("the holders, for the alerts of teams", func() error {
		return d.yields(fmt.Sprintf(`count by (network, ip, holder_namespace, holder_pod) (dupip_conflict_holder_info{ip="%s",holder_namespace="shop",holder_pod=~"web-[01]"})`, ip), 2)
	})
	a := g.Alerts[0]
	t.Logf("%s\n%s", a.Annotations["summary"], a.Annotations["description"])

	// Nothing more is sent while both agents that know the conflict are down, for several evaluations
	// and notifications, nor when Prometheus restarts.
	d.notified("firing", 1)
	l.Do(agents[0].Stop(), agents[1].Kill())
	d.eventually("the end of the agents in Prometheus", func() error {
		return d.yields("max_over_time(up[4s]) == 0", 2)
	})
	for i, a := range agents[:2] {
		agents[i] = l.Successor(a)
	}
	// When Prometheus is back, it believes for five minutes what it knew last and does not find again. That must not be the suspicion.
	d.eventually("verified again", func() error {
		const suspected = `{__name__=~"dupip_conflict_info|instance:dupip_conflict_info:last",state="suspected"}`
		return errors.Join(d.yields(`count_over_time(instance:dupip_conflict_info:last{state="confirmed"}[3s]) >= 2`, 2), d.yields(suspected, 0))
	})
	l.Do(d.prometheus.Stop())
	d.startPrometheus()
	again := fmt.Sprintf(`timestamp(dupip_conflict_info{state="confirmed"}) > %d`, time.Now().Unix()+1)
	d.eventually("scrapes, after Prometheus was away", func() error { return d.yields(again, 2) })
	_, err = d.oneGroup("DupipDuplicateAddress")
	l.Do(err)
	first := d.notified("firing", 1)
	d.notified("resolved", 0)

	e, err := watches[1].WaitConfirmed(ip, patience)
	l.Do(err)
	since := func(at time.Time) string { return fmt.Sprintf("%.2f s", at.Sub(e.Conflict.SecondSeen).Seconds()) }
	t.Logf("from the newcomer's first packet: suspected %s, confirmed %s, Prometheus fires %s, Alertmanager has it %s, the webhook is called %s (with group_wait: 5s)",
		since(e.Conflict.SuspectedAt), since(e.Conflict.ConfirmedAt), since(firing), since(held), since(first.received))

	l.Do(runtimes[1].RemovePod(t.Context(), newcomer))
	began := time.Now()
	d.eventually("the end in Prometheus", func() error {
		const known = `{__name__=~"dupip_conflict_info|instance:dupip_conflict_info:last"}`
		return errors.Join(d.yields(`ALERTS{alertname=~"Dupip.*",alertstate="firing"}`, 0), d.yields(known, 0))
	})
	resolved := time.Since(began)
	d.eventually("the end in Alertmanager", d.none)
	d.eventually("the news of the end", func() error { return d.count("resolved", 1) })
	over, err := watches[0].WaitType("resolved", ip, patience)
	l.Do(err)
	t.Logf("from the newcomer's end: resolved %.2f s, Prometheus %.2f s, Alertmanager %.2f s",
		over.At.Sub(began).Seconds(), resolved.Seconds(), time.Since(began).Seconds())
	d.notified("firing", 1)
	d.onlyFired("DupipDuplicateAddress")
}

// Twenty addresses at once are one alert, and one notification. When all but one have ended, and then the agents end, the alert is
// about that one as long as they are away.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	const many = 20
	l := lab.NewT(t)
	agents := l.Cluster(3)
	// The pods are there before, because they take longer to make than the alerts of the
	// first few addresses take to be sent.
	home := agents[0].Node
	newcomers := make([]*lab.Pod, many)
	address := func(n int) netip.Addr { return home.RoutedIPv4(byte(10 + n)) }
	var numbers []int
	for n := range many {
		numbers = append(numbers, n)
	}
	l.Do(each(numbers, func(n int) (err error) {
		o := lab.PodOptions{Style: lab.Routed, Addrs: []netip.Addr{address(n)}}
		if _, err = home.AddPod(fmt.Sprintf("older-%d", n), o); err != nil {
			return err
		}
		newcomers[n], err = agents[1].Node.AddPod(fmt.Sprintf("newcomer-%d", n), lab.PodOptions{
			Style: lab.Routed, Addrs: []netip.Addr{agents[1].Node.RoutedIPv4(byte(10 + n))},
		})
		return err
	}))
	d := newMonitoring(l, agents, 1)
	for n, p := range newcomers {
		l.Do(p.AddAddr(address(n)))
	}

	var g group
	d.eventually("one alert for all", func() (err error) {
		g, err = d.oneGroup("DupipDuplicateAddresses")
		if want := fmt.Sprintf("%d addresses of network default have two or more holders", many); err == nil && g.Alerts[0].Annotations["summary"] != want {
			err = fmt.Errorf("the summary is %q, want %q", g.Alerts[0].Annotations["summary"], want)
		}
		return err
	})
	t.Logf("%s\n%s", g.Alerts[0].Annotations["summary"], g.Alerts[0].Annotations["description"])
	d.notified("firing", 1)
	// Whatever else there was to send would be sent by then.
	for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline); <-time.After(200 * time.Millisecond) {
		l.Do(d.count("firing", 1))
	}

	l.Do(each(numbers[1:], func(n int) error { return newcomers[n].DelAddr(address(n)) }))
	const firing = `ALERTS{alertname=~"DupipDuplicate.*",alertstate="firing"}`
	remains := fmt.Sprintf(`ALERTS{alertname="DupipDuplicateAddress",alertstate="firing",ip="%s"}`, address(0))
	d.eventually("one that remains", func() error {
		return errors.Join(d.yields(firing, 1), d.yields(remains, 1))
	})
	l.Do(each(agents[:2], (*lab.Agent).Kill))
	d.eventually("the end of the agents in Prometheus", func() error { return d.yields(`up == 0`, 2) })
	gone := time.Now().Unix()
	d.eventually("it alone, ten seconds later", func() error {
		return d.yields(fmt.Sprintf(`count_over_time(%s[10s]) and on () (vector(time()) > %d) and %s`, firing, gone+10, remains), 1)
	})
	l.Do(d.yields(fmt.Sprintf(`count_over_time(%s[10s])`, firing), 1))
}

// A cluster without duplicates is quiet, also while each agent and Prometheus are started
// again, in order and after a kill. One that stays away is an alert.
//
// Minutes of the rules are seconds here.
func TestQuietUntilAnAgentIsGone(t *testing.T) {
	t.Parallel()
	hurry := int(time.Minute / lab.Patience(time.Second))
	l := lab.NewT(t)
	agents := l.Cluster(3)
	for i, a := range agents {
		l.Pod(a.Node, fmt.Sprintf("pod-%d", i), lab.PodOptions{Addrs: []netip.Addr{a.Node.IPv4(10), a.Node.IPv6(10)}})
	}
	d := newMonitoring(l, agents, hurry)
	began := time.Now()
	for i := range agents {
		end := agents[i].Stop
		if i == 1 {
			end = agents[i].Kill
		}
		l.Do(end())
		agents[i] = l.Successor(agents[i])
		l.WaitCluster(agents...)
	}
	l.Do(d.prometheus.Stop())
	d.startPrometheus()
	// As long as the rules look back, that something could be in them.
	longest := 15 * time.Minute / time.Duration(hurry)
	for time.Since(began) < 2*longest/3+longest {
		d.eventually("a quiet cluster", func() error {
			fired, err := d.fired()
			if err == nil && len(fired) > 0 {
				t.Fatalf("%v have fired", fired)
			}
			return err
		})
		<-time.After(time.Second)
	}
	l.Do(d.none())

	l.Do(agents[2].Kill())
	killed := time.Now()
	d.eventually("an alert about the agent", func() error {
		groups, err := d.groups()
		if err == nil && (len(groups) != 1 || groups[0].Labels["alertname"] != "DupipAgentDown") {
			err = fmt.Errorf("Alertmanager holds %v, want DupipAgentDown", groups)
		}
		return err
	})
	groups, err := d.groups()
	l.Do(err)
	if got, want := groups[0].Alerts[0].Annotations["summary"], fmt.Sprintf("The agent on node %s does not answer", agents[2].Node.ShortName()); got != want {
		t.Errorf("the summary is %q, want %q", got, want)
	}
	t.Logf("an agent that is gone is an alert %.1f s after its end, at %d times the speed", time.Since(killed).Seconds(), hurry)
}

// newRuntime prepares a containerd on a node of its own. All have one range, and know nothing
// of each other.
func newRuntime(l *lab.T) *cri.Runtime {
	l.Helper()
	r, err := cri.New(l.Lab, l.Node(""), cri.Options{
		Network: "pods",
		Plugins: []map[string]any{{"type": "ptp", "ipam": cri.HostLocal("10.99.0.0/24")}},
	})
	l.Do(err)
	return r
}

func startAgent(l *lab.T, n *lab.Node, flags ...string) *lab.Agent {
	l.Helper()
	return l.Agent(n, append(n.ClusterFlags(), flags...)...)
}

func runPod(l *lab.T, r *cri.Runtime, name string) *cri.Pod {
	l.Helper()
	p, err := r.RunPod(l.Context(), cri.PodOptions{Namespace: "shop", Name: name, UID: "uid-of-" + name})
	l.Do(err)
	return p
}

// each does something with all at the same time.
func each[T any](all []T, f func(T) error) error {
	var group sync.WaitGroup
	errs := make([]error, len(all))
	for i, one := range all {
		group.Go(func() { errs[i] = f(one) })
	}
	group.Wait()
	return errors.Join(errs...)
}

// names returns an error unless the alert has everything that a person needs.
func names(a alert, ip netip.Addr, older, newcomer *cri.Pod, agents []*lab.Agent) error {
	var missing []string
	for _, text := range []string{
		ip.String(), older.Namespace + "/" + older.Name, newcomer.Namespace + "/" + newcomer.Name,
		agents[0].Node.ShortName(), agents[1].Node.ShortName(),
	} {
		if !strings.Contains(a.Annotations["summary"], text) {
			missing = append(missing, text)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the summary %q does not have %v", a.Annotations["summary"], missing)
	}
	return nil
}

// count returns an error unless there were so many notifications of that kind.
func (d *monitoring) count(status string, want int) error {
	got := 0
	for _, n := range d.received() {
		if n.Status == status {
			got++
		}
	}
	if got != want {
		return fmt.Errorf("%d notifications say %q, want %d: %+v", got, status, want, d.received())
	}
	return nil
}

// notified waits until there are so many notifications of that kind, and returns the first.
func (d *monitoring) notified(status string, want int) notification {
	d.t.Helper()
	d.eventually("notifications", func() error { return d.count(status, want) })
	for _, n := range d.received() {
		if n.Status == status {
			return n
		}
	}
	return notification{}
}

// onlyFired fails the test if any other alert has fired.
func (d *monitoring) onlyFired(alertname string) {
	d.t.Helper()
	fired, err := d.fired()
	d.t.Do(err)
	for _, s := range fired {
		if s.labels["alertname"] != alertname {
			d.t.Errorf("%s has fired", s.labels["alertname"])
		}
	}
}
