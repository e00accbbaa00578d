package document

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dupip/dupip/detector"
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
		"a bomb":                     zip(t, `{"at":null}`+spaces(maxUnpacked)),
		"a bomb before":              zip(t, spaces(maxUnpacked)+`{"at":null}`),
		"a large bomb":               zip(t, strings.Repeat("[", 200<<20)),
		"a bomb of many parts":       bytes.Repeat(zip(t, spaces(1<<20)), 40),
		"lists in lists":             zip(t, strings.Repeat("[", 100)+strings.Repeat("]", 100)),
		"deep in a field of nobody":  zip(t, `{"x":`+strings.Repeat(`{"x":`, maxDepth)+"1"+strings.Repeat("}", maxDepth+1)),
		"a long string":              zip(t, `{"x":"`+strings.Repeat("x", maxString)+`"}`),
		"a long string of escapes":   zip(t, `{"x":"`+strings.Repeat(`\"`, maxString)+`"}`),
		"a long name":                zip(t, `{"`+strings.Repeat("x", maxString)+`":1}`),
		"many bindings":              zip(t, list("bindings", "{}", maxElements+1)),
		"many conflicts":             zip(t, list("conflicts", "{}", maxElements+1)),
		"many of nobody":             zip(t, list("x", "0", maxElements+1)),
		"many nulls":                 zip(t, list("stories", "null", maxElements+1)),
		"many empty lists":           zip(t, list("x", "[]", maxElements/2+1)),
		"many holders":               zip(t, `{"conflicts":[`+list("holders", "{}", maxElements)+`]}`),
		"many names in a map":        zip(t, members(maxFields)),
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
	// What is at a bound, and what a later version says, is not.
	for name, text := range map[string]string{
		"null":                    "null",
		"an empty object":         "{}",
		"as long as may be":       `{"omitted":0}` + spaces(maxUnpacked-13),
		"as deep as may be":       `{"x":` + strings.Repeat("[", maxDepth-1) + strings.Repeat("]", maxDepth-1) + "}",
		"a string as long as may": `{"x":"` + strings.Repeat("x", maxString-1) + `"}`,
		"as many as may be":       list("x", "0", maxElements),
		"braces in a string":      `{"x":"` + strings.Repeat(`[{\"`, 100) + `"}`,
		"fields of the future":    `{"later":[{"a":{"b":[1]}}],"bindings":null}`,
	} {
		if a, _, err := DecodeAnswer(zip(t, text), ourNode, ourBoot, noon); err != nil || a.Elements() != 0 || a.Omitted != 0 || !a.At.Equal(noon) {
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
		"a conflict with a scope that is new": conflict(func(c *Conflict) { c.Scope = detector.PodHost + 1 }),
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
		"a story with a conflict of another":     story(func(s *Story) { s.Conflict = &conflictOf(full, "10.0.0.8").Conflicts[0] }),
		"a story with a conflict in another net": story(func(s *Story) { s.Conflict.Network, s.Conflict.Holders = "other", nil }),
		"a story with too many":                  story(func(s *Story) { s.Bindings = make([]Binding, MaxHolders+1) }),
		"a story with a conflict of too many":    story(func(s *Story) { s.Conflict.Holders = make([]Binding, MaxHolders+1) }),
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
		if got := said(t, a); got.Elements() != 1 || got.Omitted != 6 {
			t.Errorf("%s: %d elements, %d omitted", name, got.Elements(), got.Omitted)
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

// conflictOf is an answer with its conflicts at another address.
func conflictOf(a Answer, ip string) Answer {
	var other Answer
	if err := json.Unmarshal([]byte(strings.ReplaceAll(mustJSON(a), "10.0.0.7", ip)), &other); err != nil {
		panic(err)
	}
	return other
}

func mustJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
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

// A node says what it knows, in its own name, and gives no advice.
func TestAnswerInOwnName(t *testing.T) {
	liar := func(field string) string {
		switch field {
		case "Node", "BootID":
			return "liar"
		case "To":
			return ToSelf
		}
		return field
	}
	var a Answer
	fill(reflect.ValueOf(&a).Elem(), "", liar, noon.Add(-time.Hour))
	a.At = noon
	for _, c := range []*Conflict{&a.Conflicts[0], a.Stories[0].Conflict} {
		c.Network, c.IP, c.Drill = "default", netip.MustParseAddr("192.0.2.7"), false
		for i := range c.Holders {
			c.Holders[i].Network, c.Holders[i].IP = c.Network, c.IP
		}
		index := func(n int) *int { return &n }
		c.Routes = []Route{
			{To: ToHolder, Holder: index(2)}, {To: ToHolder, Holder: index(-1)}, {To: ToHolder}, {To: ToNode, Holder: index(0)}, {Node: "liar", To: ToHolder, Holder: index(1)}, {To: ToSelf},
		}
	}
	s := &a.Stories[0]
	s.Network, s.IP = s.Conflict.Network, s.Conflict.IP
	for i := range s.Bindings {
		s.Bindings[i].Network, s.Bindings[i].IP = s.Network, s.IP
	}
	got := said(t, a)
	if len(got.Bindings) != 0 || got.Omitted != a.Omitted+2 || len(got.Stories) != 2 || len(got.Conflicts) != 2 {
		t.Fatalf("%d bindings, %d omitted, %d stories, %d conflicts", len(got.Bindings), got.Omitted, len(got.Stories), len(got.Conflicts))
	}
	own := func(what, node, boot string) {
		if node != ourNode || boot != ourBoot {
			t.Errorf("%s of %s/%s", what, node, boot)
		}
	}
	own("the answer", got.Node, got.BootID)
	own("a finding", got.Findings[1].Node, got.Findings[1].BootID)
	own("a book", got.Books[1].Node, got.Books[1].BootID)
	own("a capture", got.Captures[1].Node, got.Captures[1].BootID)
	own("the status", got.Status.Node, got.Status.BootID)
	own("a note", got.Stories[0].Notes[1].Node, got.Stories[0].Notes[1].BootID)
	for _, c := range []Conflict{got.Conflicts[0], *got.Stories[0].Conflict} {
		if c.Advice != nil || !c.Drill || len(c.Routes) != 1 || *c.Routes[0].Holder != 1 {
			t.Errorf("advice %v, a drill is %t, routes %+v", c.Advice, c.Drill, c.Routes)
		}
		own("a route", c.Routes[0].Node, c.Routes[0].BootID)
	}
	for _, c := range []Conflict{got.Conflicts[1], *got.Stories[1].Conflict} { // which says that it is one
		if c.Drill || len(c.Routes) != 0 {
			t.Errorf("a drill is %t, routes %+v", c.Drill, c.Routes)
		}
	}
	for _, s := range got.Stories {
		if s.Nodes != nil || s.Verdicts != nil || s.Verdict != "Verdict" {
			t.Errorf("verdicts %+v of %q", s.Verdicts, s.Nodes)
		}
	}
}

// Every text is short, and fit for a terminal; times and numbers do no harm.
func TestAnswerTexts(t *testing.T) {
	const bad = "a\x1b[31m\u202e\n\u0085b"
	nasty := func(field string) string {
		if field == "To" {
			return ToHolder
		}
		return bad + strings.Repeat("ä", 1000)
	}
	var a Answer
	fill(reflect.ValueOf(&a).Elem(), "", nasty, noon.Add(-time.Hour))
	for _, c := range []*Conflict{&a.Conflicts[0], &a.Conflicts[1], a.Stories[0].Conflict, a.Stories[1].Conflict} {
		c.Routes[0].Gateway = netip.MustParseAddr("fe80::1").WithZone(nasty(""))
	}
	a.Status.DADFailed[0].IP = a.Conflicts[0].Routes[0].Gateway
	packed := zip(t, asJSON(t, a))
	got, _, err := DecodeAnswer(packed, "n1", "b1", noon)
	if err != nil || len(got.Conflicts) != 2 || len(got.Stories) != 2 || len(got.Conflicts[0].Routes) != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	texts, sentences := 0, 0
	var look func(path string, v reflect.Value, sentence bool)
	check := func(path, s string, sentence bool) {
		most := MaxName
		if sentence {
			sentences++
			most = maxSentence
		}
		texts++
		// Where it was cut a letter of two bytes may have to go.
		if !strings.HasPrefix(s, "a?[31m???b") || !strings.HasSuffix(s, "ä…") || len(s) > most || len(s) < most-1 || detector.Printable(s) != s {
			t.Errorf("%s is %q of %d bytes", path, s, len(s))
		}
	}
	look = func(path string, v reflect.Value, sentence bool) {
		switch v.Kind() {
		case reflect.String:
			if s := v.String(); s != "n1" && s != "b1" && s != ToHolder {
				check(path, s, sentence)
			}
		case reflect.Pointer:
			if !v.IsNil() {
				look(path, v.Elem(), sentence)
			}
		case reflect.Slice:
			for i := range v.Len() {
				look(path, v.Index(i), sentence)
			}
		case reflect.Map:
			for key, value := range v.Seq2() {
				look(path, key, sentence)
				look(path, value, sentence)
			}
		case reflect.Struct:
			if ip, ok := v.Interface().(netip.Addr); ok && ip.Zone() != "" {
				check(path, ip.Zone(), false)
			}
			for field, value := range v.Fields() {
				if field.IsExported() {
					look(path+"."+field.Name, value, field.Tag.Get("text") == "sentence")
				}
			}
		}
	}
	look("", reflect.ValueOf(got), false)
	if texts < 200 || sentences < 20 {
		t.Errorf("%d texts, %d sentences", texts, sentences)
	}
}

// What is accepted passes the checks, and is the same when it is passed on.
func FuzzDecodeAnswer(f *testing.F) {
	real := fullAnswer(noon)
	f.Add(encode(f, real, 1<<20))
	f.Add(encode(f, Answer{At: noon, Bindings: realBindings(3)}, 1<<20))
	f.Add(zip(f, `{"at":null}`+strings.Repeat(" ", maxUnpacked)))
	f.Add(zip(f, strings.Repeat("[", 1000)))
	f.Add([]byte(asJSON(f, real))) // see below
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
		if diff := cmp.Diff(a, again, compare); diff != "" {
			t.Fatalf("(-first +again)\n%s", diff)
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
		if err != nil || c.Advice != nil || len(c.Routes) > 1 || c.Drill != made.IsDrill() {
			t.Fatalf("%+v, %v", c, err)
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
		if err := b.check(); err != nil || b.FirstSeen.After(noon) {
			t.Fatalf("%+v, %v", b, err)
		}
	}
	for i := range a.Conflicts {
		conflict(&a.Conflicts[i])
	}
	for _, s := range a.Stories {
		if len(s.Notes) > maxNotes || len(s.Bindings) > MaxHolders || !ValidAddress(s.Network, s.IP) || s.Nodes != nil || s.Verdicts != nil {
			t.Fatalf("%+v", s)
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
