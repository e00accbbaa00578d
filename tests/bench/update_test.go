package bench

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dupip/dupip/tests/lab"
)

const (
	updateNodes = 3
	// Both holders of an address send a packet each every so often.
	updateSends = 100 * time.Millisecond
	// An agent that ends sooner after the second packet cannot have confirmed with --min-overlap 1s: its successor counts.
	updateNeeds = 1500 * time.Millisecond
	// So long each agent runs once it observes all.
	updateRuns = 4 * time.Second

	stopped, killed = "a stop", "kill -9"
)

// measureUpdate replaces the agents of three nodes one after another, once by a stop and once by kill -9, while every 200 ms another
// address gets a second holder on another node, and measures how long it takes until that is confirmed, from the second packet that both
// nodes had an agent for.
func measureUpdate(b *bench) {
	agents := b.Cluster(updateNodes, "--log-level", "info")
	u := &update{bench: b}
	for _, a := range agents {
		l := &life{agent: a, pods: b.populate(a.Node, b.updated), starts: []time.Time{time.Now()}}
		u.lives = append(u.lives, l)
		b.attached(a, l.pods...)
	}
	done := make(chan struct{})
	var sending errgroup.Group
	sending.Go(func() error { return u.duplicate(done) })
	for node := range agents {
		u.replace(node, stopped, (*lab.Agent).Stop)
		u.replace(node, killed, (*lab.Agent).Kill)
	}
	b.pause(updateNeeds)
	close(done)
	b.Do(sending.Wait())
	u.report()
}

// life is one agent of a node after another.
type life struct {
	agent *lab.Agent
	pods  []*lab.Pod

	mu sync.Mutex
	// ending is when an agent was told to end, ends when it had ended, how says by what; starts has one more.
	starts, ending, ends []time.Time
	how                  []string
}

type update struct {
	*bench
	lives  []*life
	shared []shared
}

// shared is an address with two holders.
type shared struct {
	ip    netip.Addr
	nodes [2]*life
	began time.Time // when the second holder sent its first packet
}

func (u *update) replace(node int, how string, end func(*lab.Agent) error) {
	u.Helper()
	l := u.lives[node]
	began := time.Now()
	u.Do(end(l.agent))
	ended := time.Now()
	if how == killed {
		ended = began // what the kernel does then sees nothing
	}
	next, err := l.agent.Successor()
	u.Do(err)
	l.mu.Lock()
	l.agent = next
	l.ending, l.ends, l.how, l.starts = append(l.ending, began), append(l.ends, ended), append(l.how, how), append(l.starts, time.Now())
	l.mu.Unlock()
	u.Do(next.WaitMembers(u.within(), updateNodes))
	u.eventually(func() error {
		status, err := next.Client.Status(u.Context())
		if got := count(status, "interfacesByState", "attached"); err == nil && got < len(l.pods) {
			err = fmt.Errorf("the agent is attached to %d of %d interfaces", got, len(l.pods))
		}
		return err
	})
	u.pause(updateRuns)
}

// duplicate gives another address a second holder every 200 ms, until done is closed or no address is left.
func (u *update) duplicate(done <-chan struct{}) error {
	world := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.9"), 9) // which ends at the switch
	sends, begins := time.NewTicker(updateSends), time.NewTicker(200*time.Millisecond)
	defer sends.Stop()
	defer begins.Stop()
	var conns []interface{ Write([]byte) (int, error) }
	for {
		select {
		case <-done:
			return nil
		case <-sends.C:
			for _, c := range conns {
				_, _ = c.Write([]byte("dupip bench"))
			}
		case <-begins.C:
			number := len(u.shared)
			if number == updateNodes*u.updated {
				continue
			}
			one, other := u.lives[number%updateNodes], u.lives[(number+1)%updateNodes]
			owner, newcomer := one.pods[number/updateNodes], other.pods[number/updateNodes]
			ip := owner.Addrs()[0]
			if err := newcomer.AddAddr(ip); err != nil {
				return err
			}
			for _, p := range []*lab.Pod{owner, newcomer} {
				c, err := p.DialUDP(ip, world)
				if err != nil {
					return err
				}
				u.Cleanup(func() { c.Close() })
				_, _ = c.Write([]byte("dupip bench"))
				conns = append(conns, c)
			}
			u.shared = append(u.shared, shared{ip, [2]*life{one, other}, time.Now()})
		}
	}
}

// seen returns when both nodes had had an agent for two packets of both holders, and in which phase of an update that was.
func (s shared) seen() (at time.Time, phase string) {
	candidates := map[time.Time]string{s.began: "both agents run"}
	for _, l := range s.nodes {
		for i, start := range l.starts[1:] {
			if start.After(s.began) {
				candidates[start] = "a start after " + l.how[i]
			}
			if s.began.After(l.ending[i]) && s.began.Before(l.ends[i]) {
				candidates[s.began] = "an agent ends by " + l.how[i]
			}
		}
	}
	for _, at := range slices.SortedFunc(maps.Keys(candidates), time.Time.Compare) {
		if !slices.ContainsFunc(s.nodes[:], func(l *life) bool {
			return slices.ContainsFunc(l.ends, func(end time.Time) bool { return end.After(at) && end.Before(at.Add(updateNeeds)) })
		}) {
			return at.Add(updateSends), candidates[at]
		}
	}
	panic("an agent ended when the play was over")
}

func (u *update) report() {
	u.Helper()
	confirmed := make(map[netip.Addr]time.Time)
	u.eventually(func() error {
		for _, l := range u.lives {
			conflicts, err := l.agent.Client.Conflicts(u.Context(), true)
			if err != nil {
				return err
			}
			for _, c := range conflicts {
				if at := confirmed[c.IP]; !c.ConfirmedAt.IsZero() && (at.IsZero() || c.ConfirmedAt.Before(at)) {
					confirmed[c.IP] = c.ConfirmedAt
				}
			}
		}
		if len(confirmed) < len(u.shared) {
			return fmt.Errorf("%d of %d addresses are confirmed", len(confirmed), len(u.shared))
		}
		return nil
	})
	took := make(map[string][]time.Duration)
	for _, how := range []string{stopped, killed} {
		took["a start after "+how] = nil
	}
	for _, s := range u.shared {
		at, phase := s.seen()
		took[phase] = append(took[phase], max(confirmed[s.ip].Sub(at), 0))
	}
	u.title("AN UPDATE OF %d NODES WITH %d PODS EACH, %d duplicates meanwhile, from the second packet that both nodes had an agent for",
		updateNodes, u.updated, len(u.shared))
	for _, phase := range slices.Sorted(maps.Keys(took)) {
		if len(took[phase]) == 0 {
			if *size != "tiny" {
				u.Errorf("no duplicate was seen first by %s", phase)
			}
			continue
		}
		u.row(fmt.Sprintf("%s: confirmed (%d)", phase, len(took[phase])), "≤ 2.5 s", "median %.2f s, longest %.2f s",
			median(took[phase]).Seconds(), slices.Max(took[phase]).Seconds())
	}
}
