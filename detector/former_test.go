package detector

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// former are the names of those who had the default address, with the time for which they had it.
func (w *world) former() (list []string) {
	for _, s := range w.d.Explain(defaultIP) {
		for _, b := range s.Former {
			list = append(list, fmt.Sprintf("%s %s-%s", w.name(b.Holder.ID), w.since(b.FirstSeen), w.since(b.LastSeen)))
		}
	}
	return list
}

// The last holders of an address are remembered, also over restarts: not those who only forward, those on other nodes, or those who
// have it.
func TestFormerHolders(t *testing.T) {
	w := newWorld(t, Options{})
	w.play(`0s a announces
		1s b announces
		1s z@n2 announces
		20s b gone
		30s r forwards
		31s r gone
		40s a gone
		41s z@n2 gone
		50s a announces`, time.Second)
	want := []string{"b 1s-20s"}
	if got := w.former(); !slices.Equal(got, want) {
		t.Errorf("former holders %q, want %q", got, want)
	}
	w.do("0s a gone")
	want = []string{"a 0s-51s", "b 1s-20s"}
	for _, when := range []string{"before", "after"} {
		if got := w.former(); !slices.Equal(got, want) {
			t.Errorf("%s a restart: former holders %q, want %q", when, got, want)
		}
		w.do("0s agent restarts")
		w.mustAudit()
	}
	want = nil
	for n := range 2 * MaxFormer {
		name := fmt.Sprintf("p%d", n)
		w.do("0s " + name + " announces")
		w.run(w.now.Add(time.Second))
		w.do("0s " + name + " gone")
		want = append(want, name)
		w.run(w.now.Add(time.Second))
	}
	slices.Reverse(want)
	got := w.former()
	if len(got) != MaxFormer {
		t.Fatalf("%d former holders: %q", len(got), got)
	}
	for n := range got {
		if !slices.Equal(want[n:n+1], []string{got[n][:len(want[n])]}) {
			t.Errorf("former holder %d is %q, want %s", n, got[n], want[n])
		}
	}
}

// A pod that comes and goes too fast for two rounds is suspected each time, never confirmed, and the story says what it does.
func TestFlapping(t *testing.T) {
	w := newWorld(t, Options{})
	w.play("0s a announces", time.Second)
	for range 8 {
		w.do("0s b announces")
		w.run(w.now.Add(900 * time.Millisecond))
		w.do("0s b loses")
		w.run(w.now.Add(900 * time.Millisecond))
	}
	if n := w.d.Counts(); n.Suspected != 8 || n.Confirmed[SameNode] != 0 {
		t.Errorf("%d suspicions, %v confirmed", n.Suspected, n.Confirmed)
	}
	if s := w.d.Explain(defaultIP)[0].Verdict; !strings.Contains(s, "; b comes and goes, 8 times so far") || strings.Contains(s, "; a ") {
		t.Errorf("verdict %q", s)
	}
	w.run(w.now.Add(bindingTTL)) // a is still there
	w.do("0s a announces")
	w.do("0s b announces")
	w.run(w.now.Add(500 * time.Millisecond))
	w.do("0s b loses")
	if s := w.d.Explain(defaultIP)[0].Verdict; strings.Contains(s, "comes and goes") {
		t.Errorf("verdict %q long after", s)
	}
	w.mustAudit()
}
