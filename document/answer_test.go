package document

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/internal/testneeds"
)

var (
	noon    = time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)
	compare = cmp.Options{cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})}
)

const (
	ourNode = "n1"
	ourBoot = "b1"
)

// fill sets all that a document has: two elements of each list, and one of each map.
func fill(v reflect.Value, name string, text func(field string) string, at time.Time) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text(name))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8:
		v.SetUint(2) // a state, a scope and evidence
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint32, reflect.Uint64:
		v.SetUint(3)
	case reflect.Float64:
		v.SetFloat(1.5)
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), name, text, at)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), name, text, at)
	case reflect.Slice:
		n := 2
		if v.Type().Elem().Kind() == reflect.Uint8 {
			n = 1 // a frame is as long as it says
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range v.Len() {
			fill(v.Index(i), name, text, at)
		}
	case reflect.Map:
		value := reflect.New(v.Type().Elem()).Elem()
		fill(value, name, text, at)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf(text(name)).Convert(v.Type().Key()), value)
	case reflect.Struct:
		switch p := v.Addr().Interface().(type) {
		case *time.Time:
			if *p = at; name == "From" { // an absence ends after it began
				*p = at.Add(-time.Hour)
			}
			return
		case *netip.Addr:
			if *p = netip.MustParseAddr("10.0.0.7"); name == "GivenOthers" {
				*p = p.Next()
			}
			return
		case *netip.Prefix:
			*p = netip.MustParsePrefix("10.0.0.7/24")
			return
		}
		for field, value := range v.Fields() {
			if field.Name == "Self" || field.Name == "Reporters" {
				continue // of an answer, and of a status: they do not travel
			}
			fill(value, field.Name, text, at)
		}
	default:
		panic("no document has a " + v.Type().String())
	}
}

// names are texts that say what they are, of one node.
func names(field string) string {
	switch field {
	case "Node":
		return ourNode
	case "BootID":
		return ourBoot
	case "To":
		return ToHolder
	case "Behind":
		return string(BehindAlive)
	case "Manager":
		return Managers[0]
	case "NetnsPath":
		return "/run/netns/cni-1"
	}
	return field
}

// unbooked is without what only a reporter knows.
func unbooked(books []Book, holders []Binding) {
	for i := range books {
		books[i].Former, books[i].OwnerUID = nil, ""
	}
	for i := range holders {
		holders[i].Listing = nil
	}
}

// fullAnswer has everything that a node may say, each time an hour before it is made.
func fullAnswer(made time.Time) (a Answer) {
	fill(reflect.ValueOf(&a).Elem(), "", names, made.Add(-time.Hour))
	said := func(c *Conflict) {
		c.Judgement, c.Drill, c.Routes = nil, false, c.Routes[:1]
		c.Routes[0].Ends, c.Routes[0].Policy = false, false
		c.Acknowledged.Seconds = int(MinAck / time.Second)
		unbooked(c.Books, c.Holders)
	}
	without := func(list []Binding) {
		unbooked(nil, list)
		for i := range list {
			list[i].Facts = nil
		}
	}
	unbooked(a.Books, nil)
	for i := range a.Routes {
		a.Routes[i].To, a.Routes[i].Holder = ToNode, nil
	}
	for i := range a.Findings {
		f := &a.Findings[i]
		f.ReservedNode, f.FreedBy, f.OwnerUID, f.Ranges, f.Pods = "", time.Time{}, "", nil, 0
		if f.Kind != Misrouted && f.Kind != Diverted {
			f.HeldBy, f.Through, f.End, f.Partly, f.Prefix, f.Gateway, f.By = "", nil, "", false, netip.Prefix{}, false, detector.MAC{}
		}
	}
	without(a.Bindings)
	for i := range a.Conflicts {
		said(&a.Conflicts[i])
	}
	for i := range a.Stories {
		s := &a.Stories[i]
		s.Nodes, s.Verdicts = nil, nil
		without(s.Bindings)
		without(s.Former)
		said(s.Conflict)
	}
	a.At = made
	return a
}

func encode(t testing.TB, a Answer, limit int) []byte {
	t.Helper()
	packed, err := a.Encode(limit)
	if err != nil {
		t.Fatal(err)
	}
	if len(packed) > limit {
		t.Errorf("%d bytes, %d are allowed", len(packed), limit)
	}
	return packed
}

func decode(t testing.TB, packed []byte) Answer {
	t.Helper()
	a, memory, err := DecodeAnswer(packed, ourNode, ourBoot, noon)
	if err != nil {
		t.Fatal(err)
	}
	if text := unpacked(t, packed); memory < len(text) {
		t.Errorf("%d bytes of memory for %d bytes", memory, len(text))
	}
	return a
}

// asJSON is for a look at whether something has changed.
func asJSON(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// What arrives is what was sent, by the clock of who asked, whatever that of the other node says: also if it was never set.
func TestAnswer(t *testing.T) {
	want := fullAnswer(noon)
	want.Count = 0                                     // only [CountAnswer] reads it
	for f, v := range reflect.ValueOf(want).Fields() { // none was forgotten here
		if v.IsZero() && f.Name != "Self" && f.Name != "Count" {
			t.Errorf("the sample has no %s", f.Name)
		}
	}
	for _, off := range []time.Duration{0, 5 * time.Hour, -30 * time.Hour, 20 * 365 * 24 * time.Hour, time.Unix(300, 0).Sub(noon)} {
		zone := time.FixedZone("", 5*3600+45*60)
		sent := fullAnswer(noon.Add(off).In(zone))
		before := asJSON(t, sent)
		got := decode(t, encode(t, sent, 1<<20))
		if diff := cmp.Diff(want, got, compare); diff != "" {
			t.Errorf("off by %v (-want +got)\n%s", off, diff)
		}
		if zone := got.Bindings[0].FirstSeen.Location(); zone != noon.Location() {
			t.Errorf("times are in the zone %v", zone)
		}
		if after := asJSON(t, sent); after != before {
			t.Errorf("sending changed\n%s to\n%s", before, after)
		}
	}
	// Little, and nothing.
	for _, want := range []Answer{{}, {Omitted: 7}, {Bindings: want.Bindings}, {Unchecked: []string{"a < b & c > d"}}, {Status: want.Status}} {
		want.At, want.Count, want.Node, want.BootID = noon, 0, ourNode, ourBoot
		if diff := cmp.Diff(want, decode(t, encode(t, want, 1<<20)), compare); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
}

// Nothing is later than now, and what was no time is none.
func TestAnswerTimes(t *testing.T) {
	for name, test := range map[string]struct{ made, at, want time.Time }{
		"of the future":      {noon, noon.Add(time.Hour), noon},
		"of the far future":  {noon, time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), noon},
		"made in the future": {noon.Add(time.Hour), noon.Add(59 * time.Minute), noon.Add(-time.Minute)},
		"none":               {noon, time.Time{}, time.Time{}},
		"long ago":           {noon, time.Unix(0, 0), time.Time{}},
		"made at no time":    {time.Time{}, noon.Add(-time.Hour), noon},
		"made too late":      {time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), noon, time.Time{}},
	} {
		a := Answer{At: test.made, Stories: []Story{{Network: "default", IP: netip.MustParseAddr("10.0.0.7"), Notes: []Note{{At: test.at}}}}}
		if got := decode(t, encode(t, a, 1<<20)); !got.At.Equal(noon) || !got.Stories[0].Notes[0].At.Equal(test.want) {
			t.Errorf("%s: %v, want %v", name, got.Stories[0].Notes[0].At, test.want)
		}
	}
}

// random is a text that gzip makes hardly shorter.
func random(n int) string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789-."
	b := make([]byte, n)
	for i := range b {
		b[i] = letters[rand.IntN(len(letters))]
	}
	return string(b)
}

// manyOf is an answer with so many elements of each kind, with texts that say something or, at random, nothing.
func manyOf(n int, text func(field string) string) (a Answer) {
	for range n {
		b := fullAnswer(noon)
		if text != nil {
			fill(reflect.ValueOf(&b.Bindings[0].Pod).Elem(), "", text, noon)
			fill(reflect.ValueOf(&b.Findings[0].Sandbox).Elem(), "", text, noon)
			fill(reflect.ValueOf(&b.Books[0].Reservation).Elem(), "", text, noon)
			b.Conflicts[0].Pending, b.Captures[0].Conflict = text(""), text("")
		}
		a.Bindings, a.Conflicts = append(a.Bindings, b.Bindings[0]), append(a.Conflicts, b.Conflicts[0])
		a.Findings, a.Captures, a.Books = append(a.Findings, b.Findings[0]), append(a.Captures, b.Captures[0]), append(a.Books, b.Books[0])
	}
	a.At, a.Omitted = noon, 3
	return a
}

// What is too much is left out, in whole elements, of all kinds, and counted.
func TestAnswerOmits(t *testing.T) {
	const each = 500
	for what, text := range map[string]func(string) string{"names": nil, "random": func(string) string { return random(200) }} {
		a := manyOf(each, text)
		before := asJSON(t, a)
		for _, limit := range []int{1 << 24, 1 << 17, 1 << 16, 8000, 200} {
			got := decode(t, encode(t, a, limit))
			n := got.elements()
			if n+got.Omitted != 5*each+3 {
				t.Errorf("%s, %d bytes: %d elements and %d omitted", what, limit, n, got.Omitted)
			}
			if most := 4*each + maxCaptures; n > most || limit == 1<<24 && n != most {
				t.Errorf("%s, %d bytes: %d elements", what, limit, n)
			}
			if limit >= 8000 && min(len(got.Bindings), len(got.Conflicts), len(got.Findings), len(got.Captures), len(got.Books)) == 0 {
				t.Errorf("%s, %d bytes: there is no room for some of each", what, limit)
			}
		}
		if asJSON(t, a) != before {
			t.Errorf("%s: sending changed the answer", what)
		}
		if packed := encode(t, a, 1<<16); what == "random" && len(packed) < 3<<14 {
			t.Errorf("%d bytes of %d are used", len(packed), 1<<16)
		}
	}
}

// The other bounds hold, too: of elements, of bytes and of fields.
func TestAnswerWithinBounds(t *testing.T) {
	if testneeds.Raced {
		t.Skip("12 MB of JSON take a minute with the race detector")
	}
	a := manyOf(10, nil)
	for what, change := range map[string]func(*Answer){
		"elements": func(a *Answer) { a.Stories = make([]Story, answerSize.elements+99) },
		"bytes": func(a *Answer) {
			a.Conflicts[0].Pending = strings.Repeat("x", maxSentence)
			for len(a.Conflicts) < 14_000 {
				a.Conflicts = append(a.Conflicts, a.Conflicts[0])
			}
		},
		"fields": func(a *Answer) {
			a.Bindings = nil
			for range answerSize.fields / 8 {
				a.Bindings = append(a.Bindings, Binding{Network: "n"})
			}
		},
	} {
		a := a
		a.Bindings, a.Conflicts = append([]Binding(nil), a.Bindings...), append([]Conflict(nil), a.Conflicts...)
		change(&a)
		n := a.elements() + a.Omitted
		packed := encode(t, a, 1<<30)
		got := decode(t, packed)
		if got.elements()+got.Omitted != n || len(unpacked(t, packed)) > answerSize.bytes {
			t.Errorf("%s: %d elements, %d omitted of %d", what, got.elements(), got.Omitted, n)
		}
	}
}

// A status that is too large is left out and counted; what cannot be left out fails.
func TestAnswerOmitsStatus(t *testing.T) {
	a := fullAnswer(noon)
	a = Answer{At: noon, Status: a.Status}
	for range 3000 {
		a.Status.Interfaces = append(a.Status.Interfaces, InterfaceStatus{Name: random(15), Netns: random(40)})
	}
	if got := decode(t, encode(t, a, 1<<20)); got.Status == nil || got.Omitted != 0 || len(got.Status.Interfaces) != 3002 {
		t.Errorf("%+v", got)
	}
	if got := decode(t, encode(t, a, 1<<16)); got.Status != nil || got.Omitted != 1 || a.Status == nil {
		t.Errorf("%+v", got)
	}
	for _, limit := range []int{20, 1, 0} {
		if packed, err := a.Encode(limit); err == nil {
			t.Errorf("%d bytes of %d", len(packed), limit)
		}
	}
}

// Texts of the node that are longer than another one reads, as those of its files may be, are shortened.
func TestAnswerShortens(t *testing.T) {
	a := fullAnswer(noon)
	a.Checked[0], a.Unchecked[0] = strings.Repeat("n", 100_000), strings.Repeat("u", 100_000)
	a.Findings[0].CNINetwork = strings.Repeat("x", maxString)
	before := asJSON(t, a)
	got := decode(t, encode(t, a, 1<<20))
	if n := got.elements(); n != a.elements() || got.Omitted != a.Omitted {
		t.Errorf("%d elements, %d omitted", n, got.Omitted)
	}
	if !strings.HasPrefix(got.Checked[0], "nnn") || len(got.Checked[0]) != MaxName || len(got.Unchecked[0]) != maxSentence || got.Unchecked[1] != "Unchecked" || len(got.Findings[0].CNINetwork) != MaxName {
		t.Errorf("%q %q", got.Checked, got.Unchecked)
	}
	if asJSON(t, a) != before {
		t.Error("sending changed the answer")
	}
	a.Captures[0].Frames[0].Data = make([]byte, maxString) // no agent captures that much
	if packed, err := a.Encode(1 << 20); err == nil {
		t.Errorf("%d bytes", len(packed))
	}
}

// What there is no room for is counted without being read.
func TestCountAnswer(t *testing.T) {
	for _, a := range []Answer{{}, {Omitted: 7}, {Bindings: realBindings(300), Omitted: 2}} {
		packed, err := a.Encode(2000)
		if err != nil {
			t.Fatal(err)
		}
		got, size, err := CountAnswer(packed, "n1", "b1", noon)
		if want := len(a.Bindings) + a.Omitted; err != nil || size != 0 || got.Omitted != want || got.elements() != 0 || got.Node != "n1" || got.BootID != "b1" {
			t.Errorf("%+v, %v, want %d omitted", got, err, want)
		}
	}
	for _, text := range []string{"", "{}", `{"at":1}`, `{"count":"x"}`, `{"at":"` + strings.Repeat("x", 500) + `","count":1}`} {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = w.Write([]byte(text))
		_ = w.Close()
		if got, _, err := CountAnswer(b.Bytes(), "n1", "b1", noon); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
	if _, _, err := CountAnswer([]byte("x"), "n1", "b1", noon); err == nil {
		t.Error("what is not packed is counted")
	}
}
