package scenarios

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// quietChurn are pods that come and go fast.
var quietChurn = onOneAndMore(3, Scenario{
	ID: "Q23", Want: Quiet, MaySuspect: true, Text: "200 pods at 20 a second, addresses reused at once",
	Play: func(s *Stage) {
		const lanes, rounds, life = 20, 10, time.Second
		last := make([]*lab.Pod, lanes)
		errs := make([]error, lanes)
		observed := s.countPods()
		began := time.Now()
		var all sync.WaitGroup
		for lane := range lanes {
			all.Go(func() {
				time.Sleep(time.Duration(lane) * life / lanes)
				last[lane], errs[lane] = s.lane(lane, rounds, life)
			})
		}
		all.Wait()
		s.Do(errs...)
		took := time.Since(began)
		for _, p := range last {
			s.Sees(p, p.Addrs()...)
		}
		seen := observed()
		s.Logf("%.1f pods a second, %d of %d were seen while they lived", lanes*rounds/took.Seconds(), seen, lanes*rounds)
		// The lists are a quarter of a life apart, and a kernel that is busy with pods reports them
		// late: half of the pods may be gone by then.
		if seen < 2*lanes {
			s.Errorf("%d of %d pods were seen while they lived", seen, lanes*rounds)
		}
	},
})

// countPods reads the agents' bindings again and again, and counts the pods that had any.
func (s *Stage) countPods() (end func() int) {
	ctx, cancel := context.WithCancel(s.Context())
	s.Cleanup(cancel)
	var readers sync.WaitGroup
	var mu sync.Mutex
	pods := map[string]bool{}
	for _, a := range s.Actors {
		readers.Go(func() {
			for ; ctx.Err() == nil; time.Sleep(250 * time.Millisecond) {
				// An answer that fails shows in the count.
				all, _ := a.Agent.Client.Bindings(ctx, netip.Addr{})
				mu.Lock()
				for _, b := range all {
					if b.Evidence != "host" && b.Node == a.Node.ShortName() {
						pods[b.Netns] = true
					}
				}
				mu.Unlock()
			}
		})
	}
	return func() int {
		cancel()
		readers.Wait()
		return len(pods)
	}
}

// lane gives the addresses of one lane to one pod after the other, each on another node
// than the one before if there are any. The last one stays. Where it takes long to make a
// pod it lives for half of its life all the same; that is longer where the kernel and the agents wait for a processor.
func (s *Stage) lane(lane, rounds int, life time.Duration) (pod *lab.Pod, err error) {
	style := bothStyles[lane%2]
	ips := s.Addrs(style, byte(30+lane))
	for round := range rounds {
		if pod != nil {
			if err := pod.Delete(); err != nil {
				return nil, err
			}
		}
		due := time.Now().Add(life)
		n := s.Actors[(lane+round)%len(s.Actors)].Node
		pod, err = n.AddPod(fmt.Sprintf("pod%d-%d", lane, round), lab.PodOptions{Style: style, Addrs: ips})
		if err != nil {
			return nil, err
		}
		if err := pod.Spoof(ips...); err != nil {
			return nil, err
		}
		if round < rounds-1 {
			half, cancel := lab.WithTimeout(s.Context(), life/2)
			<-half.Done()
			cancel()
			time.Sleep(time.Until(due))
		}
	}
	return pod, nil
}
