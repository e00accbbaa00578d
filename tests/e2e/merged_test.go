package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/dupip/dupip/tests/lab"
)

// merged is a conflict as all nodes report it, with what else is for people.
type merged struct {
	ID, State string
	Holders   []struct{ Node, Netns, Interface string }
	Judgement *lab.Judgement
}

// open returns the names of the namespaces that are holders of the open conflicts, each conflict's joined.
func open(conflicts []merged) (list []string) {
	for _, c := range conflicts {
		var holders []string
		for _, h := range c.Holders {
			holders = append(holders, h.Netns)
		}
		if slices.Sort(holders); c.State != "resolved" {
			list = append(list, strings.Join(holders, " "))
		}
	}
	return list
}

// commands are those against the holders of conflicts, whatever their condition.
func commands(conflicts []merged) (list []string) {
	for _, c := range conflicts {
		if c.Judgement != nil {
			for _, s := range c.Judgement.Steps {
				if s.Cuts != "" {
					list = append(list, s.Command+" on "+s.Node)
				}
			}
		}
	}
	return list
}

// A holder that has died is in the merged view no more, though its node's record has it, and no command is for its
// netns or its interface, whose name a new pod may have. The new pod joins the conflict that goes on; whatever agent is asked.
func TestMergedViewOfDeadHolder(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	agents := l.Cluster(3)
	n1, n2 := agents[0].Node, agents[1].Node
	ip := n1.RoutedIPv4(5)
	pod := func(n *lab.Node, name, device string) *lab.Pod {
		return l.Pod(n, name, lab.PodOptions{Style: lab.Routed, Addrs: []netip.Addr{ip}, HostInterface: device})
	}
	a1, a2, b1 := pod(n1, "a1", ""), pod(n1, "a2", ""), pod(n2, "b1", "vethreused")
	seen := func(what string, ok func(conflicts, explained []merged) error, want ...string) {
		l.Helper()
		for _, a := range agents {
			l.Eventually(what+" on "+a.Node.ShortName(), func() error {
				out, err := a.CLI(t.Context(), "conflicts", "--cluster", "--all", "-o", "json", "--ip", ip.String())
				if err != nil {
					return err
				}
				var list struct{ Conflicts []merged }
				if err := json.Unmarshal([]byte(out), &list); err != nil {
					return err
				}
				story, err := a.CLI(t.Context(), "explain", "-o", "json", ip.String())
				if err != nil {
					return err
				}
				var doc struct {
					Stories []struct{ Conflict *merged }
				}
				if err := json.Unmarshal([]byte(story), &doc); err != nil {
					return err
				}
				if len(doc.Stories) != 1 || doc.Stories[0].Conflict == nil {
					return fmt.Errorf("no conflict in the story: %s", story)
				}
				explained := []merged{*doc.Stories[0].Conflict}
				for doc, conflicts := range map[string][]merged{out: list.Conflicts, story: explained} {
					if got := open(conflicts); !slices.Equal(got, want) {
						return fmt.Errorf("open conflicts %q, want %q: %s", got, want, doc)
					}
				}
				return ok(list.Conflicts, explained)
			})
		}
	}
	names := func(pods ...*lab.Pod) string {
		var list []string
		for _, p := range pods {
			list = append(list, p.Name)
		}
		slices.Sort(list)
		return strings.Join(list, " ")
	}
	for _, a := range agents[:2] {
		l.Eventually("three holders in the record of "+a.Node.ShortName(), func() error {
			conflicts, err := a.Client.Conflicts(t.Context(), false)
			if err == nil && (len(conflicts) != 1 || conflicts[0].State != "confirmed" || len(conflicts[0].Holders) != 3) {
				err = fmt.Errorf("%+v", conflicts)
			}
			return err
		})
	}
	seen("three holders", func(conflicts, explained []merged) error {
		for _, list := range [][]string{commands(conflicts), commands(explained)} {
			if !strings.Contains(strings.Join(list, "\n"), b1.Name) {
				return fmt.Errorf("none of the commands is for %s: %q", b1.Name, list)
			}
		}
		return nil
	}, names(a1, a2, b1))

	// n2 has no holder any more: its record ends. That of n1 goes on.
	l.Do(b1.Delete())
	l.Eventually("n2's record ends", func() error {
		all, err := agents[1].Client.Conflicts(t.Context(), true)
		if err == nil && (len(all) != 1 || all[0].State != "resolved") {
			err = fmt.Errorf("%+v", all)
		}
		return err
	})
	dead := func(all ...[]merged) error {
		list := commands(slices.Concat(all...))
		text := strings.Join(list, "\n")
		if len(list) == 0 || strings.Contains(text, b1.HostInterface) || strings.Contains(text, b1.Name) {
			return fmt.Errorf("commands %q", list)
		}
		return nil
	}
	seen("two holders", func(conflicts, explained []merged) error {
		if len(conflicts) != 1 {
			return fmt.Errorf("one duplicate is %d conflicts: %+v", len(conflicts), conflicts)
		}
		return dead(conflicts, explained)
	}, names(a1, a2))

	// Another pod has the interface's name now.
	other := l.Pod(n2, "other", lab.PodOptions{Style: lab.Routed, Addrs: []netip.Addr{n2.RoutedIPv4(9)}, HostInterface: "vethreused"})
	seen("no command for "+other.HostInterface, func(conflicts, explained []merged) error { return dead(conflicts, explained) }, names(a1, a2))

	// n2 begins a second record of the address, n1 has one all along.
	b2 := pod(n2, "b2", "")
	seen("the new holder", func(conflicts, explained []merged) error {
		if len(conflicts) != 1 {
			return fmt.Errorf("one duplicate is %d conflicts: %+v", len(conflicts), conflicts)
		}
		return dead(conflicts, explained)
	}, names(a1, a2, b2))
}
