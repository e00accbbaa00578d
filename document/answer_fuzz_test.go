package document

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dupip/dupip/detector"
)

// What is accepted passes the checks, and is the same when it is passed on.
func FuzzDecodeAnswer(f *testing.F) {
	full := fullAnswer(noon)
	f.Add(encode(f, full, 1<<20))
	f.Add(encode(f, Answer{At: noon, Bindings: realBindings(3)}, 1<<20))
	f.Add(zip(f, `{"at":null}`+strings.Repeat(" ", answerSize.bytes/8))) // a larger one leaves the fuzzer no time
	f.Add(zip(f, strings.Repeat("[", 1000)))
	for _, a := range []Answer{ // see below
		full,
		{At: noon, Bindings: full.Bindings[:1]},
		{At: noon, Conflicts: full.Conflicts[:1]},
		{At: noon, Stories: full.Stories[:1], Books: full.Books},
		{At: noon, Findings: full.Findings[:1], Captures: full.Captures[:1]},
		{At: noon, Absences: full.Absences, Unchecked: full.Unchecked, Checked: full.Checked},
		{At: noon, Status: full.Status},
	} {
		f.Add([]byte(asJSON(f, a)))
	}
	f.Fuzz(func(t *testing.T, packed []byte) {
		if len(packed) > 0 && packed[0] == '{' { // no fuzzer finds the way into gzip
			packed = zip(t, string(packed))
		}
		a, _, err := DecodeAnswer(packed, ourNode, ourBoot, noon)
		if err != nil {
			return
		}
		checkAnswer(t, a)
		a.Omitted = 0
		encoded, err := a.Encode(1 << 30)
		if err != nil {
			t.Fatal(err)
		}
		again, _, err := DecodeAnswer(encoded, ourNode, ourBoot, noon)
		if err != nil {
			t.Fatal(err)
		}
		if again.Omitted > 0 && len(packed) > 1<<16 {
			return // escapes made it too long
		}
		if asJSON(t, a) != asJSON(t, again) { // which is faster
			t.Fatalf("(-first +again)\n%s", cmp.Diff(a, again, compare))
		}
	})
}

// checkAnswer fails if something in an answer is not what the agent of our node may say.
func checkAnswer(t *testing.T, a Answer) {
	own := func(what, node, boot string) {
		if node != ourNode || boot != ourBoot {
			t.Fatalf("%s of %s/%s", what, node, boot)
		}
	}
	conflict := func(c *Conflict) {
		made, err := c.Detector()
		if err != nil || c.Judgement != nil || c.Shared < 0 || len(c.Routes) > 1 || c.Drill != made.IsDrill() {
			t.Fatalf("%+v, %v", c, err)
		}
		for _, b := range c.Holders {
			if f := b.Facts; f != nil {
				own("facts", b.Node, b.BootID)
				if len(f.GivenOthers) > MaxGivenOthers || f.Process != nil && (f.Process.PID <= 0 || len(f.Process.Command) > MaxCommand) || f.Machine != nil && f.Machine.Prefix.Addr() != b.IP {
					t.Fatalf("%+v", f)
				}
			}
		}
		for _, b := range c.Books {
			own("what a book said", b.Node, ourBoot)
		}
		if len(c.Books) > maxTexts {
			t.Fatalf("%d books", len(c.Books))
		}
		for _, r := range c.Routes {
			own("a route", r.Node, r.BootID)
			if r.Holder != nil && (*r.Holder < 0 || *r.Holder >= len(c.Holders)) {
				t.Fatalf("a route to holder %d of %d", *r.Holder, len(c.Holders))
			}
		}
	}
	own("the answer", a.Node, a.BootID)
	for _, b := range a.Bindings {
		own("a binding", b.Node, b.BootID)
		if err := b.Check(); err != nil || b.FirstSeen.After(noon) {
			t.Fatalf("%+v, %v", b, err)
		}
	}
	for i := range a.Conflicts {
		conflict(&a.Conflicts[i])
	}
	for _, s := range a.Stories {
		if len(s.Notes) > maxNotes || len(s.Bindings) > MaxHolders || !(detector.Key{Network: s.Network, IP: s.IP}).Valid() || s.Nodes != nil || s.Verdicts != nil {
			t.Fatalf("%+v", s)
		}
		for _, b := range s.Former {
			own("a former holder", b.Node, ourBoot)
			if err := b.Check(); err != nil || b.IP != s.IP || len(s.Former) > detector.MaxFormer {
				t.Fatalf("%+v, %v", b, err)
			}
		}
		if s.Conflict != nil {
			conflict(s.Conflict)
		}
	}
	for _, f := range a.Findings {
		own("a finding", f.Node, f.BootID)
	}
	for _, c := range a.Captures {
		own("a capture", c.Node, c.BootID)
		if len(c.Frames) > maxFrames || c.Lost < 0 {
			t.Fatalf("%d frames, %d lost", len(c.Frames), c.Lost)
		}
	}
	if len(a.Stories) > maxStories || len(a.Captures) > maxCaptures || len(a.Absences) > maxAbsences || a.Omitted < 0 {
		t.Fatalf("%d stories, %d captures, %d absences, %d omitted", len(a.Stories), len(a.Captures), len(a.Absences), a.Omitted)
	}
	before := asJSON(t, a)
	Clean(&a, 0, noon)
	if after := asJSON(t, a); after != before {
		t.Fatalf("it was not clean:\n%s\n%s", before, after)
	}
}
