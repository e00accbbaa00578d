package plan

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"
)

func testCluster() Cluster {
	s := Cluster{Pods: 48}
	for n := range 3 {
		s.Host = append(s.Host, []netip.Addr{netip.AddrFrom4([4]byte{192, 168, 77, byte(n + 1)})})
	}
	for i := range 64 {
		s.Pool = append(s.Pool,
			netip.AddrFrom4([4]byte{10, 244, 1, byte(20 + i)}),
			netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(20 + i)}))
	}
	return s
}

func TestTheSameSeedIsTheSamePlan(t *testing.T) {
	t.Parallel()
	one, two, other := Draw(7, testCluster(), time.Minute), Draw(7, testCluster(), time.Minute), Draw(8, testCluster(), time.Minute)
	if !reflect.DeepEqual(one, two) {
		t.Error("two plans of one seed differ")
	}
	if reflect.DeepEqual(one, other) {
		t.Error("plans of two seeds are the same")
	}
}

// world is what a plan comes to when its steps are done in order.
type world struct {
	alive map[int]*Pod
	has   map[int][]netip.Addr
}

// A plan must be possible: no pod ends twice or loses an address that it does not have, and steps
// wait for those before.
func TestPlansArePossible(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		plan := Draw(seed, testCluster(), 5*time.Minute)
		done := make(map[int]bool)
		w := world{make(map[int]*Pod), make(map[int][]netip.Addr)}
		var due time.Duration
		most, least := 0, 1000
		for _, s := range plan.Steps {
			if s.Due < due {
				t.Fatalf("seed %d: step %v is due at %v, after one due at %v", seed, s, s.Due, due)
			}
			due = s.Due
			for _, id := range s.After {
				if !done[id] {
					t.Fatalf("seed %d: step %d, %v, comes before step %d that it waits for", seed, s.ID, s, id)
				}
			}
			done[s.ID] = true
			w.do(t, s)
			if s.Due > quick {
				most, least = max(most, len(w.alive)), min(least, len(w.alive))
			}
		}
		if least < 25 || most > 75 {
			t.Errorf("seed %d: between %d and %d pods are alive", seed, least, most)
		}
	}
}

func (w world) do(t *testing.T, s *Step) {
	t.Helper()
	if s.Pod == nil {
		return
	}
	n := s.Pod.Number
	if (w.alive[n] == nil) != (s.Kind == PodStart) {
		t.Fatalf("%v: alive is %v", s, w.alive[n] != nil)
	}
	for _, ip := range s.IPs {
		if s.Kind == Forge {
			continue
		}
		has := slices.Contains(w.has[n], ip)
		if has == (s.Kind == PodStart || s.Kind == Add) {
			t.Fatalf("%v at %v: it has %v", s, s.Due, w.has[n])
		}
	}
	switch s.Kind {
	case PodStart:
		w.alive[n] = s.Pod
		w.has[n] = slices.Clone(s.IPs)
	case PodEnd:
		if len(s.IPs) != len(w.has[n]) {
			t.Fatalf("%v: it has %v", s, w.has[n])
		}
		delete(w.alive, n)
		delete(w.has, n)
	case Add:
		w.has[n] = append(w.has[n], s.IPs...)
	case Remove:
		w.has[n] = slices.DeleteFunc(w.has[n], func(ip netip.Addr) bool { return slices.Contains(s.IPs, ip) })
	}
}

// Two mirrors at a time are enough, and what a pod hides it hides before it takes an address.
func TestLiars(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		mirrors, before, reflects := make(map[int]bool), make(map[int]Kind), make(map[int]int)
		for _, s := range Draw(seed, testCluster(), 5*time.Minute).Steps {
			if s.Pod == nil {
				continue
			}
			n := s.Pod.Number
			switch s.Kind {
			case Mirror:
				mirrors[n] = true
			case PodStart:
				if s.Pod.Guest == SendsBack {
					mirrors[n] = true
				}
				if g := s.Pod.Guest; g == ReflectsBefore || g == ReflectsAfter {
					if other := reflects[s.Pod.Node]; other != 0 {
						t.Errorf("seed %d: %v: pod %d sends probes back there, too", seed, s, other)
					}
					reflects[s.Pod.Node] = n
				}
			case PodEnd:
				delete(mirrors, n)
				if reflects[s.Pod.Node] == n {
					delete(reflects, s.Pod.Node)
				}
			case Deafen, Hush:
				if s.Kind == Deafen && s.Pod.Routed {
					t.Errorf("seed %d: %v: no neighbour can ask it", seed, s)
				}
				before[n] = s.Kind
			case Rename, Nest:
				if before[n] != "" || s.Pod.Guest != "" {
					t.Errorf("seed %d: %v: it would lose what it does to probes", seed, s)
				}
			}
			if len(mirrors) > maxMirrors {
				t.Errorf("seed %d: %v: %d pods send frames back", seed, s, len(mirrors))
			}
		}
	}
}

// Every kind of story occurs in a few minutes, and addresses are reused.
func TestPlansAreVaried(t *testing.T) {
	t.Parallel()
	plan := Draw(3, testCluster(), 10*time.Minute)
	kinds := make(map[Kind]int)
	names := make(map[string]bool)
	births := make(map[netip.Addr]int)
	for _, s := range plan.Steps {
		kinds[s.Kind]++
		name := s.Why
		for i, r := range name {
			if r >= '0' && r <= '9' {
				name = name[:i]
				break
			}
		}
		names[name] = true
		if s.Kind == PodStart {
			for _, ip := range s.IPs {
				births[ip]++
			}
		}
	}
	for _, kind := range []Kind{PodStart, PodEnd, Add, Remove, Send, Restart, Rename, Nest, Forge, Mirror, Deafen, Hush} {
		if kinds[kind] < 5 {
			t.Errorf("%d steps of kind %s", kinds[kind], kind)
		}
	}
	if len(names) < 24 {
		t.Errorf("only these stories occur: %v", names)
	}
	busiest := 0
	for _, n := range births {
		busiest = max(busiest, n)
	}
	if busiest < 10 {
		t.Errorf("no address has more than %d lives in ten minutes", busiest)
	}
	if rate := float64(len(plan.Steps)) / 600; rate < 2 || rate > 8 {
		t.Errorf("%.1f steps a second", rate)
	}
	t.Log(len(plan.Steps), "steps:", kinds, names)
}
