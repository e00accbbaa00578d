package e2e

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/lab"
)

var drilled = netip.MustParseAddr("192.0.2.7")

// drill starts a drill in a pod, or on its node.
func drill(l *lab.T, where *lab.Netns, a *lab.Agent, flags ...string) *lab.Process {
	l.Helper()
	binary, err := lab.Binary()
	l.Do(err)
	cmd := exec.Command(binary, append([]string{"drill", "--ip", drilled.String(), "--api-socket", a.Socket}, flags...)...)
	p, err := where.Launch(cmd)
	l.Do(err)
	return p
}

// prints waits until a process has printed a text.
func prints(l *lab.T, p *lab.Process, text string) {
	l.Helper()
	l.Eventually("what the drill prints", func() error {
		switch {
		case strings.Contains(p.Log(), text):
			return nil
		case !p.Running():
			return lab.Final(fmt.Errorf("it ended without %q: %s", text, p.Log()))
		}
		return fmt.Errorf("without %q: %s", text, p.Log())
	})
}

// drillAddress returns the drill's address in a pod, nil if it is not there.
func drillAddress(l *lab.T, p *lab.Pod) *netlink.Addr {
	l.Helper()
	all, err := lab.Dump(func() ([]netlink.Addr, error) { return p.Netlink().AddrList(nil, netlink.FAMILY_V4) })
	l.Do(err)
	for _, a := range all {
		if a.IP.String() == drilled.String() {
			return &a
		}
	}
	return nil
}

// alerted are the series that alerts read, but not those that count all that happens.
func alerted(l *lab.T, a *lab.Agent) map[string]float64 {
	l.Helper()
	rules, err := os.ReadFile("../../deploy/alerts.yaml")
	l.Do(err)
	metrics, err := a.Scrape(l.Context())
	l.Do(err)
	found := make(map[string]float64)
	names := regexp.MustCompile(`\bdupip_\w+`).FindAllString(string(rules), -1)
	// Nobody's alerts should need to know of drills, so all that count conflicts are here, too.
	names = append(names, "dupip_conflicts_total", "dupip_conflicts_resolved_total", "dupip_suspicions_total", "dupip_suspicions_faded_total",
		"dupip_detection_seconds_count")
	for _, name := range names {
		for _, series := range metrics.Find(name) {
			found[series] = metrics[series]
		}
	}
	delete(found, "dupip_gossip_leases_unacked") // for some seconds after any new address
	return found
}

// Two pods take one address: both agents confirm a drill, nobody is alerted, and nothing is left.
func TestDrill(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		nodes    int
		style    lab.Style
		ipv6Only bool
	}{"across nodes": {nodes: 2, style: lab.Bridged}, "on one node": {nodes: 1, style: lab.Routed}, "IPv6 only": {nodes: 2, style: lab.Routed, ipv6Only: true}} {
		nodes := tt.nodes
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := lab.NewT(t)
			l.IPv6Only = tt.ipv6Only
			agents := l.Cluster(nodes)
			var pods []*lab.Pod
			var before []map[string]float64
			for n, pod := range []string{"a", "b"} {
				node := agents[n%nodes].Node
				ip := map[lab.Style]netip.Addr{lab.Bridged: node.IPv4(byte(5 + n)), lab.Routed: node.RoutedIPv4(byte(5 + n))}[tt.style]
				if tt.ipv6Only {
					ip = node.RoutedIPv6(byte(5 + n))
				}
				pods = append(pods, l.Pod(node, pod, lab.PodOptions{Style: tt.style, Addrs: []netip.Addr{ip}}))
				_, err := agents[n%nodes].Client.WaitBinding(within(l, patience), ip, func(lab.Binding) bool { return true })
				l.Do(err)
			}
			for _, a := range agents {
				l.Eventually("the first looks of "+a.Node.ShortName(), func() error {
					metrics, err := a.Scrape(l.Context())
					for _, kind := range []string{"diverted", "two-nodes"} {
						if series := fmt.Sprintf("dupip_audit_findings{kind=%q}", kind); err == nil && !slices.Contains(metrics.Find("dupip_audit_findings"), series) {
							err = fmt.Errorf("there is no %s", series)
						}
					}
					return err
				})
				before = append(before, alerted(l, a))
			}
			start := func(hold time.Duration) (drills []*lab.Process) {
				for n, p := range pods {
					drills = append(drills, drill(l, p.Netns, agents[n%nodes], "--hold", hold.String()))
					prints(l, drills[n], "added to eth0")
				}
				for _, d := range drills {
					prints(l, d, "confirmed by the agents of all holders")
				}
				return drills
			}
			held := start(10 * patience)
			for n, a := range agents {
				duringDrill(l, a, before[n])
			}
			for n, d := range held {
				l.Do(d.Signal(unix.SIGTERM))
				if err := d.Wait(within(l, patience)); err == nil || !strings.Contains(d.Log(), "dupip: the drill was interrupted") {
					t.Errorf("drill %d: %v\n%s", n, err, d.Log())
				}
			}
			// At once again: what the agents have of the first drill is not taken for the second one.
			drills := start(0)
			for n, d := range drills {
				want := "the drill has succeeded\n"
				if nodes == 1 {
					want = "the drill has succeeded, on one node only: what nodes tell each other was not tested\n"
				}
				if err := d.Wait(within(l, patience)); err != nil || !strings.Contains(d.Log(), want) {
					t.Errorf("drill %d: %v\n%s", n, err, d.Log())
				}
				if a := drillAddress(l, pods[n]); a != nil {
					t.Errorf("%v was left", a)
				}
			}
			t.Logf("the first one printed:\n%s", drills[0].Log())
			for n, a := range agents {
				if diff := cmp.Diff(before[n], alerted(l, a)); diff != "" {
					t.Errorf("after the drill (-before +after):\n%s", diff)
				}
				if !strings.Contains(a.Log(), `level=INFO msg="drill confirmed"`) || strings.Contains(a.Log(), "level=WARN") {
					t.Errorf("the agent's log:\n%s", a.Log())
				}
			}
		})
	}
}

// duringDrill checks what an agent shows of a drill that is confirmed.
func duringDrill(l *lab.T, a *lab.Agent, before map[string]float64) {
	l.Helper()
	metrics, err := a.Scrape(l.Context())
	l.Do(err)
	drills := make(map[string]float64)
	for _, series := range metrics.Find("dupip_drills") {
		drills[series] = metrics[series]
	}
	if want := map[string]float64{`dupip_drills{state="confirmed"}`: 1, `dupip_drills{state="suspected"}`: 0}; !maps.Equal(drills, want) {
		l.Errorf("metrics %v, want %v", drills, want)
	}
	if diff := cmp.Diff(before, alerted(l, a)); diff != "" {
		l.Errorf("during the drill (-before +now):\n%s", diff)
	}
	for command, want := range map[string]string{
		"conflicts":             drilled.String() + " (drill)",
		"conflicts --cluster":   drilled.String() + ": Nothing: it is a drill, which ends by itself.",
		"conflicts -o json":     `"drill": true`,
		"conflicts --exit-code": "What to do:",
		"explain 192.0.2.7":     "What to do:\nNothing: it is a drill, which ends by itself.",
		"status":                "Conflicts   none;",
		"status -o wide":        "Drills      1 confirmed",
		"status -o json":        `"openConflictsByState": {},`,
	} {
		got := dupip(l, nil, append(strings.Fields(command), "--api-socket", a.Socket)...)
		if got.code != 0 || !strings.Contains(got.stdout, want) || strings.Contains(got.stdout, "Remove") || strings.Contains(got.stdout, "kubectl") {
			l.Errorf("%s: %+v, want %q and nothing to remove", command, got, want)
		}
	}
}

// A drill that is interrupted, or has no second pod, removes its address; one that is killed leaves it to the kernel.
func TestDrillLeavesNothing(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	a := l.Agent(n)
	pod := l.Pod(n, "pod", lab.PodOptions{Addrs: []netip.Addr{n.IPv4(5)}})
	for name, tt := range map[string]struct {
		flags  []string
		signal unix.Signal
		want   string
	}{
		"interrupted": {nil, unix.SIGTERM, "dupip: the drill was interrupted"},
		"alone":       {[]string{"--timeout", "3s"}, 0, "dupip: after 3s: not confirmed: no second holder of 192.0.2.7 was seen: does the other pod run"},
	} {
		d := drill(l, pod.Netns, a, tt.flags...)
		if tt.signal != 0 {
			prints(l, d, "added to eth0")
			l.Do(d.Signal(tt.signal))
		}
		if err := d.Wait(within(l, patience)); err == nil || !strings.Contains(d.Log(), tt.want) || !strings.Contains(d.Log(), "192.0.2.7 removed from eth0") {
			t.Errorf("%s: %v\n%s", name, err, d.Log())
		}
		if left := drillAddress(l, pod); left != nil {
			t.Errorf("%s: %v was left", name, left)
		}
	}
	d := drill(l, pod.Netns, a, "--timeout", "5s", "--hold", "0s")
	prints(l, d, "added to eth0")
	l.Do(d.Kill())
	if left := drillAddress(l, pod); left == nil || left.ValidLft < 1 || left.ValidLft > 15 {
		t.Errorf("killed: %+v, want an address that expires", left)
	}
	again := drill(l, pod.Netns, a)
	if err := again.Wait(within(l, patience)); err == nil || !strings.Contains(again.Log(), "192.0.2.7 is here already") {
		t.Errorf("a second one: %v\n%s", err, again.Log())
	}
	l.Eventually("the end of the address", func() error {
		if left := drillAddress(l, pod); left != nil {
			return fmt.Errorf("%+v", left)
		}
		return nil
	})
}

// A drill that cannot be found says why: both pods have the address, and it may have many holders.
func TestDrillOfSharedAddress(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	file := filepath.Join(t.TempDir(), "dupip.yaml")
	l.Do(os.WriteFile(file, []byte("shared: [192.0.2.0/24]\n"), 0o600))
	a := l.Agent(n, "--config", file)
	var drills []*lab.Process
	for i, name := range []string{"a", "b"} {
		pod := l.Pod(n, name, lab.PodOptions{Addrs: []netip.Addr{n.IPv4(byte(5 + i))}})
		drills = append(drills, drill(l, pod.Netns, a, "--timeout", "4s"))
	}
	// The other pod may have given up first.
	var said string
	for _, d := range drills {
		if err := d.Wait(within(l, patience)); err == nil {
			t.Errorf("a drill succeeded:\n%s", d.Log())
		}
		said += d.Log()
	}
	if !strings.Contains(said, "dupip: after 4s: not confirmed: the agent says: two live holders, but declared shared: not a conflict") {
		t.Errorf("the drills printed:\n%s", said)
	}
}

// A drill refuses what it must not do, and says what is missing.
func TestDrillRefuses(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n, other := l.Node(""), l.Node("")
	a, b := l.Agent(n), l.Agent(other)
	pod := l.Pod(n, "pod", lab.PodOptions{Addrs: []netip.Addr{n.IPv4(5)}})
	empty := l.Pod(n, "empty", lab.PodOptions{Silent: true})
	for name, tt := range map[string]struct {
		where *lab.Netns
		agent *lab.Agent
		flags []string
		want  string
	}{
		"an address of somebody":  {pod.Netns, a, []string{"--ip", n.IPv4(9).String()}, "must be an address of 192.0.2.0/24"},
		"no address":              {pod.Netns, a, []string{"--ip", ""}, "must be an address of 192.0.2.0/24"},
		"no interface":            {pod.Netns, a, []string{"--interface", "eth7"}, "--interface eth7: Link not found"},
		"a pod without addresses": {empty.Netns, a, []string{"--timeout", "1s"}, "has the pod no address"},
		"a node":                  {n.Netns, a, nil, "run the drill in a pod without hostNetwork"},
		"another node's agent":    {pod.Netns, b, []string{"--timeout", "1s"}, "is it another node's agent?"},
		"no agent":                {pod.Netns, &lab.Agent{Socket: "/nonexistent.sock"}, []string{"--timeout", "1s"}, "no agent is running at /nonexistent.sock"},
	} {
		d := drill(l, tt.where, tt.agent, tt.flags...)
		err := d.Wait(within(l, patience))
		if err == nil || !strings.Contains(d.Log(), tt.want) || strings.Contains(d.Log(), "added") || strings.Count(d.Log(), "\n") != 1 {
			t.Errorf("%s: %v, %s, want one line with %q", name, err, d.Log(), tt.want)
		}
	}
	if took := drillAddress(l, pod); took != nil {
		t.Errorf("%v is in the pod", took)
	}
}
