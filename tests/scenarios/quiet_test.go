package scenarios

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

var mustStayQuiet = slices.Concat(quietSilent, quietLifecycle, quietMoves, quietOtherNetworks, quietClaims, quietChurn, quietCNI, quietRestart, quietHostile,
	quietForwarding, quietAnswers, quietSources, quietNetworks, quietSolicitation, quietApart, quietReboot, quietClock, quietWorld, quietInside, quietIPv6Only, quietWithDevices, quietOutside, quietNodes, quietStrangers, quietSpeakers)

// quietLifecycle are addresses that move between pods.
var quietLifecycle = []Scenario{
	{ID: "Q2", Want: Quiet, MaySuspect: true, Text: "sandbox re-created ten times, same address", Play: func(s *Stage) {
		for _, style := range bothStyles {
			ips := s.Addrs(style, 2)
			for round := range 10 {
				p := s.Pod(fmt.Sprintf("%s-%d", styleName(style), round), lab.PodOptions{Style: style, Addrs: ips})
				s.Talk(p, ips...)
				s.Sees(p, ips...)
				// In every other round the kernel takes the devices down when it
				// finds time for it, and the next sandbox is there before.
				end := p.Delete
				if round%2 == 1 {
					end = p.DeleteNetns
				}
				s.Do(end())
			}
		}
	}},
	{ID: "Q21", Want: Quiet, MaySuspect: true, Text: "netns inode and ifindex reused by the next pod", Play: func(s *Stage) {
		const index = 5000
		for _, style := range bothStyles {
			name, old, fresh := styleName(style), s.Addrs(style, 21), s.Addrs(style, 22)
			var second *lab.Pod
			// Others on this machine make netns, too, and may be faster.
			for try := 0; second == nil; try++ {
				if try == 20 {
					s.Fatal("the inode of the old netns was never given out again")
				}
				first := s.Pod(fmt.Sprintf("first%d-%s", try, name), lab.PodOptions{Style: style, Addrs: old, HostIndex: index})
				s.Talk(first, old...)
				s.Sees(first, old...)
				inode, err := first.Inode()
				s.Do(err)
				s.Do(first.Delete())
				second = s.podWithInode(fmt.Sprintf("second%d-%s", try, name), inode, lab.PodOptions{Style: style, Addrs: fresh, HostIndex: index})
			}
			s.Talk(second, fresh...)
			third := s.Pod("third-"+name, lab.PodOptions{Style: style, Addrs: old})
			s.Talk(third, old...)
			s.Sees(second, fresh...)
			s.Sees(third, old...)
			s.Do(second.Delete())
		}
	}},
}

// podWithInode makes a pod whose netns has an inode that was in use before, or returns
// nil. The kernel gives out the lowest free number, once it has destroyed the old netns,
// which it does when it finds time for it.
func (s *Stage) podWithInode(name string, inode uint64, o lab.PodOptions) *lab.Pod {
	s.Helper()
	var misfits []*lab.Pod
	defer func() {
		for _, p := range misfits {
			s.Do(p.Delete())
		}
	}()
	var found *lab.Pod
	// Otherwise another netns has it. On a busy machine the kernel takes seconds.
	_ = lab.Poll(s.Context(), 10*time.Second, func() error {
		trial := s.Pod(fmt.Sprintf("%s-%d", name, len(misfits)), lab.PodOptions{Style: lab.Raw, Interface: "trial"})
		if got, err := trial.Inode(); err != nil || got != inode {
			misfits = append(misfits, trial)
			return errors.New("it has another inode")
		}
		_, err := trial.AddInterface(o)
		s.Do(err)
		found = trial
		return nil
	})
	return found
}
