package core

import (
	"slices"
	"testing"

	"github.com/dupip/dupip/agent/books"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/detector"
)

// CNI's result names an interface that waits for the end of its set-up: the core tells the watcher that it need not wait any longer.
func TestSettled(t *testing.T) {
	for name, test := range map[string]struct {
		state  links.State
		result *books.Result
		want   []uint32
	}{
		"its result":          {links.Waiting, &books.Result{HostEnds: []string{"veth"}}, []uint32{7}},
		"no result":           {links.Waiting, nil, nil},
		"of another host end": {links.Waiting, &books.Result{HostEnds: []string{"veth2"}}, nil},
		"nothing waits":       {links.Attached, &books.Result{HostEnds: []string{"veth"}}, nil},
	} {
		l := newHarness(t, "")
		var settled []uint32
		l.Settled = func(generation uint32) { settled = append(settled, generation) }
		i := l.add(t, 7, 70)
		next := *i.Interface
		next.State = test.state
		l.Update(links.Event{Kind: links.Changed, Interface: &next})
		l.Name(pods.Change{Cookie: 70, Pod: detector.Pod{Name: "a"}, Result: test.result})
		if !slices.Equal(settled, test.want) {
			t.Errorf("%s: settled %v, want %v", name, settled, test.want)
		}
	}
}
