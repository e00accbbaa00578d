package transport

import (
	"strings"
	"testing"
	"time"
)

// Agents that are configured differently do not connect, whoever dials, do not receive each other's
// datagrams, and both report why.
func TestMismatch(t *testing.T) {
	plain, other := func(*Options) {}, label("other")
	const (
		noKey     = "it has a --gossip-key-file and this node has none"
		onlyKey   = "this node has a --gossip-key-file and it has none"
		otherKey  = "it has other keys in its --gossip-key-file"
		cluster   = "it belongs to a cluster with another name: check --cluster"
		sameKey   = "the agent at 127.0.0.1 does not have the gossip key of this node: give both the same --gossip-key-file"
		sameLabel = "the agent at 127.0.0.1 is of another cluster: if this node belongs there, give both the same --cluster"
	)
	for name, test := range map[string]struct {
		first, second       []func(*Options)
		toSecond, toFirst   string // the error of dialling
		problem, why, whyTo string
	}{
		"with and without a key":      {[]func(*Options){keys(t, 1)}, []func(*Options){plain}, onlyKey, noKey, sameKey, "key", "key"},
		"different keys":              {[]func(*Options){keys(t, 1)}, []func(*Options){keys(t, 2)}, otherKey, otherKey, sameKey, "key", "key"},
		"one new key too early":       {[]func(*Options){keys(t, 1)}, []func(*Options){keys(t, 2, 1)}, otherKey, otherKey, sameKey, "", "key"},
		"different labels":            {[]func(*Options){keys(t, 1)}, []func(*Options){keys(t, 1), other}, cluster, cluster, sameLabel, "label", "label"},
		"different labels, no key":    {[]func(*Options){plain}, []func(*Options){other}, cluster, cluster, sameLabel, "label", "label"},
		"an empty label":              {[]func(*Options){keys(t, 1)}, []func(*Options){keys(t, 1), label("")}, cluster, cluster, sameLabel, "label", "label"},
		"different labels and keys":   {[]func(*Options){keys(t, 1)}, []func(*Options){keys(t, 2), other}, cluster, cluster, sameLabel, "label", "label"},
		"different labels, one a key": {[]func(*Options){keys(t, 1)}, []func(*Options){plain, other}, cluster, cluster, sameLabel, "label", "label"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, way := range []struct {
				from, to []func(*Options)
				err      string
			}{{test.first, test.second, test.toSecond}, {test.second, test.first, test.toFirst}} {
				from, to := open(t, 1, way.from...), open(t, 2, way.to...)
				for range 5 {
					if err := from.echo(to); err == nil || err.Error() != way.err {
						t.Fatalf("error %v, want %q", err, way.err)
					}
				}
				for _, n := range []*node{from, to} {
					eventually(t, "it is reported", func() bool { return n.problem() == test.problem })
				}
				if later := time.Now().Add(mistakeFor); len(from.Problems(later)) > 0 || len(to.Problems(later)) > 0 {
					t.Error("it is reported for ever")
				}
			}
			first, second := open(t, 1, test.first...), open(t, 2, test.second...)
			for _, way := range []struct {
				from, to *node
				why      string
			}{{first, second, test.why}, {second, first, test.whyTo}} {
				if err := way.from.Send(way.to.ID, way.to.at, []byte("datagram")); err != nil {
					t.Fatal(err)
				}
				if way.why == "" { // it has the key; what it dials is refused all the same
					eventually(t, "it is received", func() bool { return way.to.count() == 1 })
					continue
				}
				eventually(t, "it is refused", func() bool {
					return strings.HasPrefix(way.to.dropped(), way.why+" ") && way.to.problem() == test.problem
				})
				if way.to.count() > 0 {
					t.Errorf("received %v", way.to.received)
				}
			}
		})
	}
}
