package document

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/netip"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/internal/bounds"
)

// zip packs what no agent says.
func zip(t testing.TB, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// unpacked is the JSON of an answer.
func unpacked(t testing.TB, packed []byte) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// said returns what a liar says, as it is, as this node reads it.
func said(t testing.TB, a Answer) Answer {
	t.Helper()
	return decode(t, zip(t, asJSON(t, a)))
}

// What no agent says is refused as a whole.
func TestAnswerRefused(t *testing.T) {
	valid := encode(t, fullAnswer(noon), 1<<20)
	spaces := func(n int) string { return strings.Repeat(" ", n) }
	list := func(field, element string, n int) string {
		return `{"` + field + `":[` + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + "]}"
	}
	members := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"%x":1`, i)
		}
		return `{"status":{"dropped":{` + b.String()[1:] + "}}}"
	}
	for name, packed := range map[string][]byte{
		"nothing":                    nil,
		"no gzip":                    []byte(`{"at":"2026-03-01T12:00:00Z"}`),
		"an empty text":              zip(t, ""),
		"breaks off":                 valid[:len(valid)-1],
		"breaks off early":           valid[:len(valid)/2],
		"a wrong checksum":           append(valid[:len(valid)-8:len(valid)-8], 1, 2, 3, 4, 5, 6, 7, 8),
		"goes on":                    append(valid[:len(valid):len(valid)], "x"...),
		"two answers":                append(valid[:len(valid):len(valid)], valid...),
		"no JSON":                    zip(t, "hello"),
		"a list":                     zip(t, "[]"),
		"a number":                   zip(t, "7"),
		"a half":                     zip(t, `{"bindings":[{`),
		"a string without an end":    zip(t, `{"bindings":["`),
		"an escape without an end":   zip(t, `{"bindings":["\`),
		"a bomb":                     zip(t, `{"at":null}`+spaces(answerSize.bytes)),
		"a bomb before":              zip(t, spaces(answerSize.bytes)+`{"at":null}`),
		"a bomb of many parts":       bytes.Repeat(zip(t, spaces(1<<20)), 40),
		"lists in lists":             zip(t, strings.Repeat("[", 100)+strings.Repeat("]", 100)),
		"deep in a field of nobody":  zip(t, `{"x":`+strings.Repeat(`{"x":`, maxDepth)+"1"+strings.Repeat("}", maxDepth+1)),
		"a long string":              zip(t, `{"x":"`+strings.Repeat("x", maxString)+`"}`),
		"a long string of escapes":   zip(t, `{"x":"`+strings.Repeat(`\"`, maxString)+`"}`),
		"a long name":                zip(t, `{"`+strings.Repeat("x", maxString)+`":1}`),
		"many bindings":              zip(t, list("bindings", "{}", answerSize.elements+1)),
		"many conflicts":             zip(t, list("conflicts", "{}", answerSize.elements+1)),
		"many of nobody":             zip(t, list("x", "0", answerSize.elements+1)),
		"many nulls":                 zip(t, list("stories", "null", answerSize.elements+1)),
		"many empty lists":           zip(t, list("x", "[]", answerSize.elements/2+1)),
		"many holders":               zip(t, `{"conflicts":[`+list("holders", "{}", answerSize.elements)+`]}`),
		"many names in a map":        zip(t, members(answerSize.fields)),
		"a text for a list":          zip(t, `{"bindings":"x"}`),
		"an address that is none":    zip(t, `{"bindings":[{"ip":"10.0.0"}]}`),
		"an address with a new line": zip(t, `{"bindings":[{"ip":"x\n\u001b[31m"}]}`),
		"a MAC that is none":         zip(t, `{"bindings":[{"mac":"x\u001b[31m"}]}`),
		"a time that is none":        zip(t, `{"at":"noon"}`),
		"a long number":              zip(t, `{"omitted":`+strings.Repeat("1", 1<<20)+`}`),
		"a fraction":                 zip(t, `{"omitted":1.5}`),
	} {
		a, size, err := DecodeAnswer(packed, ourNode, ourBoot, noon)
		if err == nil || size != 0 || !reflect.ValueOf(a).IsZero() {
			t.Errorf("%s: %d bytes, %v", name, size, err)
			continue
		}
		if text := err.Error(); !strings.Contains(text, "node n1: ") || len(text) > 2*maxSentence || detector.Printable(text) != text {
			t.Errorf("%s: %.100q of %d bytes", name, text, len(text))
		}
	}
	bomb := bytes.Repeat(zip(t, strings.Repeat("[", 1<<20)), 200)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, _ = DecodeAnswer(bomb, ourNode, ourBoot, noon)
	if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 10*uint64(answerSize.bytes) {
		t.Errorf("a bomb of %d bytes takes %d MB", len(bomb), (after.TotalAlloc-before.TotalAlloc)>>20)
	}
	// What is empty takes more memory than its text, unless it is refused: then it is not kept.
	a, memory, err := DecodeAnswer(zip(t, list("conflicts", "{}", answerSize.elements)), ourNode, ourBoot, noon)
	if err != nil || cap(a.Conflicts) > 0 || memory < answerSize.elements*int(unsafe.Sizeof(Conflict{})) {
		t.Errorf("room for %d conflicts, %d bytes: %v", cap(a.Conflicts), memory, err)
	}
	// What is at a bound, and what a later version says, is not refused.
	for name, text := range map[string]string{
		"null":                    "null",
		"an empty object":         "{}",
		"as long as may be":       `{"omitted":0}` + spaces(answerSize.bytes-13),
		"as deep as may be":       `{"x":` + strings.Repeat("[", maxDepth-1) + strings.Repeat("]", maxDepth-1) + "}",
		"a string as long as may": `{"x":"` + strings.Repeat("x", maxString-1) + `"}`,
		"as many as may be":       list("x", "0", answerSize.elements),
		"braces in a string":      `{"x":"` + strings.Repeat(`[{\"`, 100) + `"}`,
		"fields of the future":    `{"later":[{"a":{"b":[1]}}],"bindings":null}`,
	} {
		if a, _, err := DecodeAnswer(zip(t, text), ourNode, ourBoot, noon); err != nil || a.elements() != 0 || a.Omitted != 0 || !a.At.Equal(noon) {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
}

// An element that is invalid, or not for that node to say, is left out and counted, and those beside it are there.
func TestAnswerElementsRefused(t *testing.T) {
	full := fullAnswer(noon)
	conflict := func(change func(*Conflict)) Answer {
		c := fullAnswer(noon).Conflicts[0]
		change(&c)
		return Answer{Conflicts: []Conflict{c, full.Conflicts[1]}}
	}
	story := func(change func(*Story)) Answer {
		s := fullAnswer(noon).Stories[0]
		change(&s)
		return Answer{Stories: []Story{s, full.Stories[1]}}
	}
	binding := func(change func(*Binding)) Answer {
		b := fullAnswer(noon).Bindings[0]
		change(&b)
		return Answer{Bindings: []Binding{b, full.Bindings[1]}}
	}
	all := map[string]Answer{
		"a binding of another node":           binding(func(b *Binding) { b.Node = "n2" }),
		"a binding of another boot":           binding(func(b *Binding) { b.BootID = "b2" }),
		"a binding with a slash in its node":  binding(func(b *Binding) { b.Node, b.BootID = "n1/b1", "" }),
		"a binding of no node":                binding(func(b *Binding) { b.Node = "" }),
		"a binding of no holder":              binding(func(b *Binding) { b.NetnsCookie, b.Ifindex = 0, 0 }),
		"a binding of no network":             binding(func(b *Binding) { b.Network = "" }),
		"a binding without evidence":          binding(func(b *Binding) { b.Evidence = 0 }),
		"a binding with evidence that is new": binding(func(b *Binding) { b.Evidence = detector.Host + 1 }),
		"a binding that was never seen":       binding(func(b *Binding) { b.FirstSeen = time.Time{} }),
		"a conflict without an id":            conflict(func(c *Conflict) { c.ID = "" }),
		"a conflict without a state":          conflict(func(c *Conflict) { c.State = 0 }),
		"a conflict in a state that is new":   conflict(func(c *Conflict) { c.State = detector.Resolved + 1 }),
		"a conflict without a scope":          conflict(func(c *Conflict) { c.Scope = 0 }),
		"a conflict with a scope that is new": conflict(func(c *Conflict) { c.Scope = detector.NodeNode + 1 }),
		"a conflict without a time":           conflict(func(c *Conflict) { c.ConfirmedAt = time.Time{} }),
		"a conflict with an odd holder":       conflict(func(c *Conflict) { c.Holders[1].Node = "" }),
		"a conflict of another address":       conflict(func(c *Conflict) { c.IP = netip.MustParseAddr("10.0.0.8") }),
		"a conflict of another network":       conflict(func(c *Conflict) { c.Network = "other" }),
		"a conflict of too many": conflict(func(c *Conflict) {
			for len(c.Holders) <= MaxHolders {
				c.Holders = append(c.Holders, c.Holders[0])
			}
		}),
		"a story with an odd holder":             story(func(s *Story) { s.Bindings[0].FirstSeen = time.Time{} }),
		"a story with a holder of another":       story(func(s *Story) { s.Bindings[1].IP = netip.MustParseAddr("10.0.0.8") }),
		"a story with an odd conflict":           story(func(s *Story) { s.Conflict.State = 0 }),
		"a story with a conflict of another":     story(func(s *Story) { s.Conflict.IP, s.Conflict.Holders = netip.MustParseAddr("10.0.0.8"), nil }),
		"a story with a conflict in another net": story(func(s *Story) { s.Conflict.Network, s.Conflict.Holders = "other", nil }),
		"a story with too many":                  story(func(s *Story) { s.Bindings = slices.Repeat(s.Bindings[:1], MaxHolders+1) }),
		"a story with a conflict of too many":    story(func(s *Story) { s.Conflict.Holders = slices.Repeat(s.Conflict.Holders[:1], MaxHolders+1) }),
		"a capture of no network":                {Captures: []Capture{{IP: full.Captures[0].IP}, full.Captures[1]}},
	}
	for name, ip := range map[string]string{"no": "", "the unspecified": "0.0.0.0", "the other unspecified": "::", "a mapped": "::ffff:10.0.0.1", "a zoned": "fe80::1%eth0"} {
		var addr netip.Addr
		if ip != "" {
			addr = netip.MustParseAddr(ip)
		}
		name += " address"
		all["a binding of "+name] = binding(func(b *Binding) { b.IP = addr })
		all["a conflict of "+name] = conflict(func(c *Conflict) { c.IP, c.Holders = addr, nil })
		all["a story of "+name] = story(func(s *Story) { s.IP, s.Bindings, s.Conflict = addr, nil, nil })
		all["a finding of "+name] = Answer{Findings: []Finding{{IP: addr}, full.Findings[0]}}
		all["a capture of "+name] = Answer{Captures: []Capture{{Network: "default", IP: addr}, full.Captures[0]}}
	}
	for name, a := range all {
		a.At, a.Omitted = noon, 5
		if got := said(t, a); got.elements() != 1 || got.Omitted != 6 {
			t.Errorf("%s: %d elements, %d omitted", name, got.elements(), got.Omitted)
		}
	}
	for omitted, want := range map[int]int{-1: 0, -1 << 62: 0, 1 << 62: maxOmitted, maxOmitted: maxOmitted, 77: 77} {
		if got := said(t, Answer{Omitted: omitted}); got.Omitted != want {
			t.Errorf("%d omitted are %d, want %d", omitted, got.Omitted, want)
		}
	}
	for _, span := range [][2]time.Time{{noon, noon}, {noon, noon.Add(-time.Second)}, {{}, noon}, {noon, {}}} {
		if got := said(t, Answer{At: noon, Absences: []Absence{{Node: "n2", From: span[0], Until: span[1]}, {From: noon.Add(-time.Hour), Until: noon}}}); len(got.Absences) != 0 || got.Omitted != 0 {
			t.Errorf("absent from %v to %v", span[0], span[1])
		}
	}
}

// Lists have bounds. Of notes the newest are kept; of holders that are too many nothing is.
func TestAnswerBounds(t *testing.T) {
	a := fullAnswer(noon)
	s, capture := a.Stories[0], a.Captures[0]
	for n := range 100 {
		s.Notes = append(s.Notes, Note{Text: fmt.Sprint("note ", n)})
	}
	capture.Frames, capture.Lost = nil, -1
	for range 2 * maxFrames {
		capture.Frames = append(capture.Frames, Frame{At: noon.Add(time.Hour), Length: -5, Data: make([]byte, 5*maxFrame)})
	}
	a.Books[0].Unreserved = -7
	a.Stories, a.Captures, a.Absences, a.Unchecked, a.Checked = nil, nil, nil, nil, nil
	for i := range 300 {
		a.Stories, a.Captures = append(a.Stories, s), append(a.Captures, capture)
		capture.Frames, s.Notes = nil, nil // only the first ones have many
		a.Absences = append(a.Absences, Absence{Node: fmt.Sprint("n", i), From: noon.Add(-time.Hour), Until: noon})
		a.Unchecked, a.Checked = append(a.Unchecked, "x"), append(a.Checked, "x")
	}
	a.Conflicts[0].Holders = nil
	for range MaxHolders {
		a.Conflicts[0].Holders = append(a.Conflicts[0].Holders, a.Conflicts[1].Holders...)
	}
	a.Conflicts[1].Holders = a.Conflicts[0].Holders[:MaxHolders]
	a.Omitted = 0
	got := said(t, a)
	if len(got.Stories) != maxStories || len(got.Captures) != maxCaptures || got.Omitted != 300-maxStories+300-maxCaptures+1 {
		t.Errorf("%d stories, %d captures, %d omitted", len(got.Stories), len(got.Captures), got.Omitted)
	}
	if n := bounds.Counts()["too many texts or absences in an answer"]; n < 300*3-maxAbsences-2*maxTexts {
		t.Errorf("%d texts and absences are counted", n)
	}
	if len(got.Absences) != maxAbsences || len(got.Unchecked) != maxTexts || len(got.Checked) != maxTexts {
		t.Errorf("%d absences, %d and %d texts", len(got.Absences), len(got.Unchecked), len(got.Checked))
	}
	if notes := got.Stories[0].Notes; len(notes) != maxNotes || notes[maxNotes-1].Text != "note 99" || notes[0].Text != "note 36" {
		t.Errorf("%d notes, the first is %q", len(notes), notes[0].Text)
	}
	c := got.Captures[0]
	if f := c.Frames[len(c.Frames)-1]; len(c.Frames) != maxFrames || c.Lost != 0 || len(f.Data) != maxFrame || f.Length != maxFrame || !f.At.Equal(noon) {
		t.Errorf("%d frames, %d lost; a frame of %d bytes, %d here, at %v", len(c.Frames), c.Lost, f.Length, len(f.Data), f.At)
	}
	if len(got.Conflicts) != 1 || len(got.Conflicts[0].Holders) != MaxHolders || got.Books[0].Unreserved != 0 || got.Books[1].Unreserved != 1 {
		t.Errorf("%d conflicts; %d unreserved", len(got.Conflicts), got.Books[0].Unreserved)
	}
	capture.Frames = []Frame{{Length: 1 << 40, Data: nil}}
	if f := said(t, Answer{At: noon, Captures: []Capture{capture}}).Captures[0].Frames[0]; f.Length != 1<<20 {
		t.Errorf("a frame of %d bytes", f.Length)
	}
}
