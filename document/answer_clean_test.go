package document

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
)

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
		c.Network, c.IP, c.Drill = "default", netip.MustParseAddr("192.0.2.7"), true
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
		if c.Judgement != nil || c.Holders[0].Facts != nil || !c.Drill || len(c.Routes) != 1 || *c.Routes[0].Holder != 1 {
			t.Errorf("judgement %v, facts %v, a drill is %t, routes %+v", c.Judgement, c.Holders[0].Facts, c.Drill, c.Routes)
		}
		own("a route", c.Routes[0].Node, c.Routes[0].BootID)
		own("what the books said", c.Books[1].Node, ourBoot) // of any boot
	}
	for _, c := range []Conflict{got.Conflicts[1], *got.Stories[1].Conflict} { // which says that it is one
		if c.Drill || len(c.Routes) != 0 {
			t.Errorf("a drill is %t, routes %+v", c.Drill, c.Routes)
		}
	}
	for _, s := range got.Stories {
		if len(s.Former) != 0 || s.Nodes != nil || s.Verdicts != nil || s.Verdict != "Verdict" {
			t.Errorf("verdicts %+v of %q", s.Verdicts, s.Nodes)
		}
	}
}

// Every text is short, and fit for a terminal; times and numbers do no harm.
// TestFindingsOfAgents: an agent does not say what only a reporter finds, and not what the books of the API server have.
func TestFindingsOfAgents(t *testing.T) {
	ip := netip.MustParseAddr("10.0.0.7")
	var sent Answer
	for _, kind := range FindingKinds {
		sent.Findings = append(sent.Findings, Finding{
			Kind: kind, IP: ip, ReservedNode: "victim", Ranges: []string{"x"}, Pods: 9, OwnerUID: "u",
			HeldBy: "n3\x1b" + strings.Repeat("n", 1000), Through: make([]string, 100), End: EndsNowhere, Prefix: netip.PrefixFrom(ip, 24), Gateway: true, By: detector.MAC{2},
		})
	}
	sent.At = noon
	var got []string
	for _, f := range decode(t, encode(t, sent, 1<<20)).Findings {
		if got = append(got, f.Kind); f.ReservedNode != "" || f.Ranges != nil || f.Pods != 0 || f.OwnerUID != "" {
			t.Errorf("%+v", f)
		}
		if routes := f.Kind == Misrouted || f.Kind == Diverted; (f.End != "") != routes || (len(f.Through) == maxRoutes) != routes || len(f.HeldBy) > MaxName {
			t.Errorf("%+v", f)
		}
		two := f.Kind == TwoNodes
		held := slices.Contains([]string{Misrouted, Diverted, TwoNodes, Stranger}, f.Kind)
		if strings.HasPrefix(f.HeldBy, "n3?") != held || f.Prefix.IsValid() != two || f.Gateway != two || (f.By != detector.MAC{}) != (f.Kind == Stranger) {
			t.Errorf("%+v", f)
		}
	}
	if want := []string{Mismatched, Unreserved, Diverted, TwoNodes, Stranger, Misrouted, Unheld}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

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
		if strings.HasSuffix(path, ".OwnerUID") || slices.Contains([]string{".Findings.ReservedNode", ".Findings.HeldBy", ".Findings.End"}, path) {
			return // a reporter's, and those of another kind
		}
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

// A pod has a name and a namespace, a container a name and an engine that there is; others are unknown.
func TestAnswerPods(t *testing.T) {
	for pod, want := range map[Pod]bool{
		{Namespace: "shop", Name: "cart-0"}: true, {}: false, {Name: "cart-0"}: false, {Namespace: "shop"}: false, {UID: "0-1"}: false,
		{Name: "web", Engine: "docker"}: true, {Name: "web", Engine: "rootless podman"}: true, {Engine: "docker"}: false,
		{Namespace: "shop", Name: "web", Engine: "docker"}: false, {Name: "web", Engine: "reboot"}: false,
	} {
		a := fullAnswer(noon)
		a.Bindings[0].Pod, a.Conflicts[0].Holders[0].Pod, a.Findings[0].ReservedPod = &pod, &pod, &pod
		got := said(t, a)
		for what, got := range map[string]*Pod{"a binding": got.Bindings[0].Pod, "a holder": got.Conflicts[0].Holders[0].Pod, "a finding": got.Findings[0].ReservedPod} {
			if (got != nil) != want || want && *got != pod {
				t.Errorf("%s of %+v has %+v", what, pod, got)
			}
		}
	}
}

// Of a reservation for too many sandboxes none is kept: one that is left out could be a holder's, and then that one has lost nothing.
func TestSandboxesOfAnswer(t *testing.T) {
	for n, want := range map[int]int{maxTexts: maxTexts, maxTexts + 1: 0} {
		a := fullAnswer(noon)
		a.Conflicts[0].Books[0].Reservation = &Reservation{Sandboxes: slices.Repeat([]string{"0123456789abc"}, n)}
		got, _, err := DecodeAnswer(zip(t, asJSON(t, a)), "n1", "b1", noon)
		if err != nil || len(got.Conflicts) == 0 {
			t.Fatal(got.Conflicts, err)
		}
		if left := len(got.Conflicts[0].Books[0].Reservation.Sandboxes); left != want {
			t.Errorf("of %d sandboxes there are %d, want %d", n, left, want)
		}
	}
}
