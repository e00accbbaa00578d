package lab

import (
	"context"
	"slices"
	"testing"
)

// Agents of a cluster see each other, lose one that is killed and one that leaves, and know a
// rebooted node as another one.
func TestCluster(t *testing.T) {
	t.Parallel()
	l := NewT(t)
	agents := l.Cluster(3)
	first, second, third := agents[0], agents[1], agents[2]
	members, err := first.Client.Members(t.Context())
	l.Do(err)
	for _, a := range agents {
		if !slices.ContainsFunc(members, func(m Member) bool {
			return m.Name == a.Node.ShortName() && m.Boot == a.Node.BootID() && m.Self == (a == first)
		}) {
			t.Errorf("%s does not know %s: %+v", first.Node.ShortName(), a.Node.ShortName(), members)
		}
	}
	state := func(a *Agent, wanted string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), Patience(clusterTimeout))
		defer cancel()
		l.Do(first.WaitNodes(ctx, a.Node.ShortName()+" "+wanted, func(all []Member) bool {
			return slices.ContainsFunc(all, func(m Member) bool {
				return m.Name == a.Node.ShortName() && m.Boot == a.Node.BootID() && m.State == wanted
			})
		}))
	}
	l.Do(second.Stop(), third.Kill())
	state(second, "left")
	state(third, "dead")
	l.Do(third.Node.Reboot())
	l.WaitCluster(first, l.Successor(second), l.Successor(third))
}
