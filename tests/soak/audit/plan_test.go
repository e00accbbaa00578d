package audit

import (
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// step is one thing that happens, with all that is random in it.
type step struct {
	kind string
	due  time.Duration
	// hold is how long what it has done stays.
	hold time.Duration
	rand *rand.Rand
}

// kinds are the kinds of steps, with how often they come.
var kinds = []struct {
	name   string
	weight int
	do     func(*play, *step)
}{
	{"start", 100, (*play).start},
	{"stop", 60, (*play).stop},
	{"kill", 8, (*play).kill},
	{"lose", 70, (*play).lose},
	{"give", 60, (*play).give},
	{"leak", 40, (*play).leak},
	{"take", 50, (*play).take},
	{"other", 20, (*play).other},
	{"dead", 12, (*play).dead},
	{"wipe", 4, (*play).wipe},
	{"break", 4, (*play).spoil},
	{"freeze", 1, (*play).freeze},
	{"restart", 1, (*play).restart},
}

// draw draws a plan: four steps a second, and some pods to begin with.
func draw(seed uint64, length time.Duration) (plan []*step) {
	r := rand.New(rand.NewPCG(seed, 0))
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	once := map[string]time.Duration{"wipe": length / 3, "restart": length * 2 / 3}
	for due := time.Duration(0); due < length; {
		s := &step{kind: "start", due: due, rand: rand.New(rand.NewPCG(seed, uint64(len(plan))+1))}
		if len(plan) >= 5 {
			n := r.IntN(total)
			for _, k := range kinds {
				if n -= k.weight; n < 0 {
					s.kind = k.name
					break
				}
			}
		}
		for kind, at := range once { // in each plan, also in a short one
			if due >= at {
				s.kind = kind
				delete(once, kind)
				break
			}
		}
		switch n := r.IntN(10); {
		case n < 3: // too short to be found
			s.hold = time.Duration(50+r.IntN(750)) * time.Millisecond
		case n < 8:
			s.hold = time.Duration(2000+r.IntN(7000)) * time.Millisecond
		default:
			s.hold = time.Duration(16000+r.IntN(6000)) * time.Millisecond
		}
		s.hold = min(s.hold, max(length/4, 5*time.Second))
		plan = append(plan, s)
		due += time.Duration(r.ExpFloat64() * float64(250*time.Millisecond))
	}
	return plan
}

// perform does the steps, each when it is due.
func (p *play) perform(plan []*step) {
	var working sync.WaitGroup
	began := time.Now()
	for _, s := range plan {
		time.Sleep(time.Until(began.Add(s.due)))
		working.Go(func() {
			for _, k := range kinds {
				if k.name == s.kind {
					k.do(p, s)
				}
			}
		})
	}
	working.Wait()
}

// done counts a step.
func (p *play) done(s *step) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.steps[s.kind]++
}

// must reports an error of a step.
func (p *play) must(s *step, err error) {
	if err != nil {
		p.Errorf("seed %d, step %q at %v: %v", p.seed, s.kind, s.due, err)
	}
}

// pick draws a pod that runs.
func (p *play) pick(s *step, other ...*pod) *pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []*pod
	for _, pod := range p.pods {
		if !slices.Contains(other, pod) && !pod.killed.Load() {
			all = append(all, pod)
		}
	}
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, func(a, b *pod) int { return strings.Compare(a.Name, b.Name) })
	return all[s.rand.IntN(len(all))]
}

// claim takes an address for a step, which has it until it ends and a moment longer.
func (p *play) claim(ip netip.Addr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	taken := p.busy[ip]
	p.busy[ip] = true
	return !taken
}

func (p *play) release(ip netip.Addr) {
	time.AfterFunc(2*time.Second, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.busy, ip)
	})
}

func (p *play) file(ip netip.Addr) string { return filepath.Join(p.books[0].store, ip.String()) }
