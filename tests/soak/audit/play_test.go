package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/dupip/dupip/tests/cri"
	"github.com/dupip/dupip/tests/lab"
)

// pod is a pod, with a handle to its netns while nobody has told it to end.
type pod struct {
	*cri.Pod
	mu     sync.Mutex
	handle *netlink.Handle
	link   netlink.Link
	// killed: its process was, and its netns stays.
	killed atomic.Bool
}

// play is one run of a plan.
type play struct {
	*lab.T
	*cri.Runtime
	agent *lab.Agent
	seed  uint64
	began time.Time
	books []book
	judge *judge

	// calls guards the runtime against those who stop it.
	calls sync.RWMutex

	mu     sync.Mutex
	pods   map[string]*pod
	ended  map[string]time.Time
	ready  map[string]bool
	thawed time.Time           // until when the agent may look for it
	busy   map[netip.Addr]bool // a step has changed something about it
	frozen bool                // the runtime is stopped
	steps  map[string]int      // done, by kind
	number int                 // of the next pod
	usage  lab.Usage
}

const (
	mainRange  = "10.98.0.0/25"
	otherRange = "10.98.1.0/25"
)

func newPlay(t testing.TB, seed uint64) *play {
	p := &play{
		T: lab.NewT(t), seed: seed, judge: newJudge(),
		pods: make(map[string]*pod), ended: make(map[string]time.Time), busy: make(map[netip.Addr]bool), steps: make(map[string]int),
	}
	var err error
	p.Runtime, err = cri.New(p.Lab, p.T.Node(""), cri.Options{
		Network: "main", Plugins: []map[string]any{{"type": "ptp", "ipam": cri.HostLocal(mainRange)}},
	})
	p.Do(err)
	other := map[string]any{"cniVersion": "1.0.0", "name": "other", "plugins": []any{map[string]any{
		"type": "bridge", "ipam": map[string]any{"type": "host-local", "dataDir": p.Store(), "ranges": [][]map[string]string{{{"subnet": otherRange}}}},
	}}}
	data, err := json.Marshal(other)
	// The runtime takes the first file, which is lab.conflist.
	p.Do(err, os.WriteFile(filepath.Join(p.ConfDir(), "other.conflist"), data, 0o644), p.Start(p.Context()))
	for _, name := range []string{"main", "other"} {
		b := book{store: filepath.Join(p.Store(), name), cover: netip.MustParsePrefix(mainRange), primary: true}
		if name == "other" {
			b.cover, b.primary = netip.MustParsePrefix(otherRange), false
		}
		p.Do(os.MkdirAll(b.store, 0o755))
		p.books = append(p.books, b)
	}
	p.agent = p.Agent(p.Runtime.Node, "--cri-socket", p.Socket, "--cni-conf-dir", p.ConfDir(), "--unheld-after", unheldAfter.String(), "--log-level", "info")
	p.began = time.Now()
	p.usage = p.Usage(p.agent.Process)
	return p
}

// watch reads the truth and asks the agent until the returned function is called.
func (p *play) watch() (end func()) {
	ctx, cancel := context.WithCancel(p.Context())
	var watching sync.WaitGroup
	every := func(interval time.Duration, do func(context.Context)) {
		watching.Go(func() {
			for ticker := time.NewTicker(interval); ; {
				do(ctx)
				select {
				case <-ticker.C:
				case <-ctx.Done():
					ticker.Stop()
					return
				}
			}
		})
	}
	every(look, p.list)
	every(look, func(context.Context) { p.judge.see(p.truth()) })
	every(poll, p.ask)
	return func() {
		cancel()
		watching.Wait()
	}
}

// list reads the runtime's list.
func (p *play) list(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	p.mu.Lock()
	frozen := p.frozen
	p.mu.Unlock()
	if frozen {
		return
	}
	answer, err := p.Client().ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return
	}
	ready := make(map[string]bool)
	for _, s := range answer.GetItems() {
		ready[s.GetId()] = s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ready = ready
}

// truth takes a snapshot.
func (p *play) truth() *snapshot {
	p.mu.Lock()
	pods := slices.Collect(maps.Values(p.pods))
	p.mu.Unlock()
	s := &snapshot{has: make(map[string][]netip.Addr)}
	for _, pod := range pods {
		if ips, ok := pod.addresses(); ok {
			s.has[pod.ID] = ips
		}
	}
	for _, b := range p.books {
		reserved, _ := b.read()
		if reserved == nil {
			if _, err := os.Stat(b.store); os.IsNotExist(err) {
				reserved = make(map[netip.Addr]string)
			}
		}
		s.books = append(s.books, shelf{b, reserved})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s.at, s.ready, s.ended = time.Now(), p.ready, maps.Clone(p.ended)
	s.frozen, s.settling = p.frozen, s.at.Before(p.thawed)
	return s
}

// addresses reads what the kernel lists, false if the pod is about to end.
func (p *pod) addresses() (ips []netip.Addr, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.handle == nil {
		return nil, false
	}
	list, err := p.handle.AddrList(p.link, unix.AF_INET)
	if err != nil {
		return nil, false
	}
	for _, a := range list {
		if ip, ok := netip.AddrFromSlice(a.IP.To4()); ok {
			ips = append(ips, ip)
		}
	}
	return ips, true
}

// ask asks the agent.
func (p *play) ask(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, lab.Patience(10*time.Second))
	defer cancel()
	from := time.Now()
	out, err := p.agent.CLI(limited, "audit", "-o", "json")
	to := time.Now()
	if ctx.Err() != nil {
		return
	}
	var doc struct {
		Findings []struct {
			Kind, Store, Sandbox, ReservedFor string
			IP                                netip.Addr
			Since                             time.Time
		}
	}
	if err == nil {
		err = json.Unmarshal([]byte(out), &doc)
	}
	if err != nil {
		p.Errorf("seed %d: %v", p.seed, err)
		return
	}
	var findings []finding
	for _, f := range doc.Findings {
		findings = append(findings, finding{key{f.Kind, f.Store, f.IP, f.Sandbox, f.ReservedFor}, f.Since})
	}
	p.judge.see(p.truth())
	for _, k := range p.judge.polled(from, to, findings) {
		for _, command := range []string{"audit", "explain " + k.ip.String()} {
			out, _ := p.agent.CLI(limited, strings.Fields(command)...) // an error is in the output, too
			p.Logf("%v is missing; dupip %s says:\n%s", k, command, out)
		}
	}
}

// settle waits until the agent has what is true, and as many findings as they should be.
func (p *play) settle(when string, enough func(open int) bool) {
	p.Helper()
	if err := lab.Poll(p.Context(), lab.Patience(2*deadline), func() error {
		if missing, extra, open := p.judge.difference(); len(missing)+len(extra) > 0 || !enough(open) {
			return fmt.Errorf("missing %v, not true any more %v, %d in all", missing, extra, open)
		}
		return nil
	}); err != nil {
		p.Errorf("seed %d: %s: %v", p.seed, when, err)
	}
}

// end removes all pods, and what was put into the stores.
func (p *play) end() {
	p.Helper()
	for _, pod := range p.pods {
		p.Do(p.remove(pod, false))
	}
	for _, b := range p.books {
		p.Do(os.RemoveAll(b.store))
	}
}

func (p *play) summary() {
	p.Helper()
	j := p.judge
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, text := range j.errors {
		p.Errorf("seed %d: %s", p.seed, text)
	}
	expected, found, long, longFound := 0, 0, 0, 0
	for k, all := range j.spans {
		for _, s := range all {
			lasts := s.to.Sub(s.from)
			if lasts < k.least() {
				continue
			}
			expected++
			if !s.found.IsZero() {
				found++
			}
			if !s.must.IsZero() && s.to.Sub(s.must) >= deadline {
				long++
				if !s.found.IsZero() {
					longFound++
				}
			}
		}
	}
	var steps []string
	total := 0
	for _, kind := range slices.Sorted(maps.Keys(p.steps)) {
		steps = append(steps, fmt.Sprintf("%d %s", p.steps[kind], kind))
		total += p.steps[kind]
	}
	p.Logf("steps: %d: %s", total, strings.Join(steps, ", "))
	p.Logf("true for as long as a finding needs: %d, found %d of them; true for %v: %d, found %d", expected, found, deadline, long, longFound)
	var all []time.Duration
	for _, kind := range slices.Sorted(maps.Keys(j.delays)) {
		p.Logf("from the cause to the finding, %s: %s", kind, quantiles(j.delays[kind]))
		all = append(all, j.delays[kind]...)
	}
	p.Logf("from the cause to the finding: %s; from its end to none: %s", quantiles(all), quantiles(j.goes))
	now := p.Usage(p.agent.Process)
	p.Logf("agent: %v, before %v; %.2f%% of a core; %d polls, the slowest took %v", now, p.usage, 100*now.Cores(p.usage), j.polls, j.slowest)
	p.Logf("seed %d: false findings %d, missed %d, too long %d", p.seed, j.false, j.missed, j.lingers)
	if *length >= 20*time.Second && found == 0 {
		p.Error("nothing was found")
	}
}

func quantiles(all []time.Duration) string {
	if len(all) == 0 {
		return "none"
	}
	slices.Sort(all)
	n := len(all)
	return fmt.Sprintf("p50 %.1f s, p99 %.1f s, max %.1f s, of %d", all[n/2].Seconds(), all[n*99/100].Seconds(), all[n-1].Seconds(), n)
}
