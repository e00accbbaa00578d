package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"

	"github.com/dupip/dupip/tests/lab"
)

// announceEvery is how often a pod announces its addresses, one after the other: the observer reports 50 a second of one interface.
const announceEvery = 25 * time.Millisecond

// massAddr is one of those that two nodes share.
func massAddr(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 77, byte(i >> 8), byte(i)}) }

// measureMass gives pods of two nodes the same addresses and measures until both agents have confirmed all, and what it costs to look at so many
// open conflicts.
func measureMass(b *bench) {
	agents := b.Cluster(2, "--log-level", "info")
	b.title("TWO NODES SHARE %d ADDRESSES, IN %d PAIRS OF PODS", b.shared, b.sharedPods)
	pods := make([][]*lab.Pod, len(agents))
	for n, a := range agents {
		pods[n] = b.massPods(a.Node)
	}
	b.share(pods[0])
	b.eventually(func() error {
		if got := announced(b.status(agents[0])); got < b.shared {
			return fmt.Errorf("the agent has %d of %d addresses", got, b.shared)
		}
		return nil
	})
	before, sent := b.usages(agents), b.sentBy(agents)
	began := time.Now()
	b.share(pods[1])
	taken := time.Since(began)
	var confirmed int
	var at25, took time.Duration
	early := 0
	deadline := began.Add(b.sharedFor)
	for confirmed < b.shared && time.Now().Before(deadline) {
		b.pause(500 * time.Millisecond)
		confirmed = b.confirmedBy(agents)
		if took = time.Since(began); at25 == 0 && took > 25*time.Second {
			at25, early = took, confirmed
		}
	}
	if at25 == 0 {
		early = confirmed
	}
	now, after := b.sentBy(agents), b.usages(agents)
	b.row("announced by the second node within", "", "%.1f s", taken.Seconds())
	b.row("confirmed by both within 25 s", "all", "%d of %d", early, b.shared)
	b.row("confirmed by both in the end", "all", "%d of %d after %.1f s", confirmed, b.shared, took.Seconds())
	b.row("sent by a node until then", "≤ 5 MB", "%.1f and %.1f MB", float64(now[0]-sent[0])/1e6, float64(now[1]-sent[1])/1e6)
	for n := range agents {
		b.row(fmt.Sprintf("node %d: CPU of a core, memory", n+1), "", "%.0f%%, %d MiB, at most %d", 100*after[n].Cores(before[n]), after[n].RSS>>20, after[n].Peak>>20)
	}
	b.lookAt(agents)
}

// massPods makes the pods of a node.
func (b *bench) massPods(n *lab.Node) []*lab.Pod {
	pods := make([]*lab.Pod, b.sharedPods)
	var group errgroup.Group
	group.SetLimit(4)
	for i := range pods {
		group.Go(func() (err error) {
			pods[i], err = n.AddPod(fmt.Sprintf("%s-mass%d", n.ShortName(), i), lab.PodOptions{Style: lab.Routed, Silent: true})
			return err
		})
	}
	b.Do(group.Wait())
	return pods
}

// share gives pods the addresses, by turns, and has them announce each.
func (b *bench) share(pods []*lab.Pod) {
	var group errgroup.Group
	for p, pod := range pods {
		group.Go(func() error {
			var own []netip.Addr
			for i := p; i < b.shared; i += len(pods) {
				own = append(own, massAddr(i))
			}
			err := pod.Exec(func() error {
				link, err := netlink.LinkByName(pod.Interface)
				if err != nil {
					return err
				}
				for _, ip := range own {
					if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: netlink.NewIPNet(ip.AsSlice())}); err != nil {
						return err
					}
				}
				return nil
			})
			for _, ip := range own {
				err = errors.Join(err, pod.Announce(ip))
				time.Sleep(announceEvery)
			}
			return err
		})
	}
	b.Do(group.Wait())
}

// usages are those of the agents.
func (b *bench) usages(agents []*lab.Agent) (list []lab.Usage) {
	for _, a := range agents {
		u, err := a.Usage()
		b.Do(err)
		list = append(list, u)
	}
	return list
}

// sentBy returns how many bytes each node has sent to the others.
func (b *bench) sentBy(agents []*lab.Agent) (list []uint64) {
	for _, a := range agents {
		b.Do(a.Node.Exec(func() error {
			link, err := netlink.LinkByName(lab.UplinkName)
			if err == nil {
				list = append(list, link.Attrs().Statistics.TxBytes)
			}
			return err
		}))
	}
	return list
}

// confirmedBy returns how many conflicts all agents have confirmed, at least.
func (b *bench) confirmedBy(agents []*lab.Agent) int {
	var counts []int
	for _, a := range agents {
		m, err := a.Scrape(b.within())
		b.Do(err)
		n := 0.0
		for _, series := range m.Find("dupip_conflicts", `state="confirmed"`) {
			n += m[series]
		}
		counts = append(counts, int(n))
	}
	return slices.Min(counts)
}

// lookAt measures what it costs to look at the open conflicts: time, what is printed, and the memory that the agent takes for it.
func (b *bench) lookAt(agents []*lab.Agent) {
	b.title("%d OPEN CONFLICTS: SECONDS, SIZE OF WHAT IS PRINTED, MORE MEMORY OF THE AGENT", b.shared)
	a := agents[0]
	look := func(what string, f func(ctx context.Context) (int, error)) {
		before := b.usages(agents)
		began := time.Now()
		n, err := f(b.within())
		took := time.Since(began)
		b.Do(err)
		after := b.usages(agents)
		b.row(what, "", "%.2f s, %.2f MB, %d and %d MiB", took.Seconds(), float64(n)/1e6, (after[0].RSS-before[0].RSS)>>20, (after[1].RSS-before[1].RSS)>>20)
	}
	for _, args := range [][]string{
		{"conflicts"},
		{"conflicts", "--cluster"},
		{"conflicts", "-o", "json"},
		{"conflicts", "--cluster", "-o", "json"},
		{"status"},
		{"explain", massAddr(1).String()},
	} {
		look("dupip "+fmt.Sprint(args), func(ctx context.Context) (int, error) {
			out, err := a.CLI(ctx, args...)
			return len(out), err
		})
	}
	page := b.page(a)
	look("the page of dupip ui", func(ctx context.Context) (int, error) { return get(ctx, page) })
	began := time.Now()
	m, err := a.Scrape(b.within())
	b.Do(err)
	b.row("/metrics", "", "%.2f s, %d series", time.Since(began).Seconds(), len(m))
	info, err := os.Stat(filepath.Join(a.StateDir(), "state.json"))
	b.Do(err)
	b.row("state.json", "", "%.1f MB", float64(info.Size())/1e6)
	idle := b.usages(agents)
	b.pause(b.idle / 8)
	for n, u := range b.usages(agents) {
		b.row(fmt.Sprintf("node %d afterwards: CPU of a core, memory", n+1), "", "%.0f%%, %d MiB", 100*u.Cores(idle[n]), u.RSS>>20)
	}
}

// page returns the address of the page of an agent.
func (b *bench) page(a *lab.Agent) string {
	b.Helper()
	binary, err := lab.Binary()
	b.Do(err)
	ui := exec.CommandContext(b.Context(), binary, "ui", "--port", "0", "--api-socket", a.Socket)
	out, err := ui.StdoutPipe()
	b.Do(err, ui.Start())
	b.Cleanup(func() { _ = ui.Process.Kill(); _ = ui.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	b.Do(err)
	return regexp.MustCompile(`http://\S+`).FindString(line)
}

// get returns how many bytes a page has.
func get(ctx context.Context, page string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
	if err != nil {
		return 0, err
	}
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		return 0, errors.New(reply.Status)
	}
	n, err := io.Copy(io.Discard, reply.Body)
	return int(n), err
}
