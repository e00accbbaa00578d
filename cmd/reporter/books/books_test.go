package books

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/document"
)

// TestAbout: what the books say of a conflict: who has the reservation, who had it, and which pods and Nodes there are.
func TestAbout(t *testing.T) {
	w := newWorld(t)
	a := *w.holds("n3", "10.1.1.5", "shop/a")
	w.pod("shop/a", "n3", "10.1.1.5", "")
	w.block("10.1.1.0/26", allocated{"10.1.1.5", "shop/a", "n1", ""})
	w.after(time.Second)
	w.block("10.1.1.0/26")
	w.after(time.Second)
	b := *w.holds("n2", "10.1.1.5", "shop/b")
	w.pod("shop/b", "n2", "10.1.1.5", "")
	w.block("10.1.1.0/26", allocated{"10.1.1.5", "shop/b", "n2", ""})
	w.gone("pods", "shop/a")
	w.gone("nodes", "n3")
	w.after(time.Second)
	c := document.Conflict{IP: a.ip, Holders: []document.Binding{{Holder: a.document()}, {Holder: b.document()}}}
	w.About(&c)
	if len(c.Books) != 1 {
		t.Fatalf("%+v", c.Books)
	}
	book := c.Books[0]
	if book.Node != "" || book.Kind != "calico" || book.Reservation.Pod.String() != "shop/b" || book.Reservation.Sandbox != b.sandbox ||
		book.Former.Pod.String() != "shop/a" || book.Former.Node != "n1" || book.Former.Until.IsZero() {
		t.Errorf("%+v, %+v, %+v", book, book.Reservation, book.Former)
	}
	if l := c.Holders[0].Listing; l.Pod != document.PodUnlisted || l.NodeDeleted.IsZero() {
		t.Errorf("%+v", l)
	}
	if l := c.Holders[1].Listing; *l != (document.Listing{Pod: document.PodListed}) {
		t.Errorf("%+v", l)
	}
	container := b.document()
	container.Pod = &document.Pod{Name: "web", UID: "0", Engine: "docker"}
	withContainer := document.Conflict{IP: a.ip, Holders: []document.Binding{{Holder: container}}}
	if w.About(&withContainer); *withContainer.Holders[0].Listing != (document.Listing{}) {
		t.Errorf("of a container, which the API server never has: %+v", withContainer.Holders[0].Listing)
	}
	// Of a virtual machine that moves no holder is the only one that is right.
	w.block("10.1.1.0/26", allocated{"10.1.1.5", "", "", `"handle_id": "k8s-pod-network.vmi.shop.vm", "secondary": {"namespace": "shop", "pod": "a", "node": "n1"}`})
	if list := w.Of(a.ip); len(list) != 1 || list[0].Reservation != nil || list[0].Error == "" {
		t.Errorf("of a virtual machine: %+v", list)
	}
	for what, lost := range map[string]func(){
		"the API server does not answer": func() { w.opts.Answers = func() bool { return false } },
		"another reporter reads them":    func() { w.opts.Answers, w.running = func() bool { return true }, false },
	} {
		w.running = true
		lost()
		c = document.Conflict{IP: a.ip, Holders: []document.Binding{{Holder: a.document()}}}
		if w.About(&c); len(c.Books) > 0 || c.Holders[0].Listing != nil {
			t.Errorf("%s: %+v", what, c)
		}
	}
}

// TestHostile: objects that are broken, huge or invented do no harm.
func TestHostile(t *testing.T) {
	w := newWorld(t)
	long := strings.Repeat("x", 1<<20)
	for _, text := range []string{
		`null`, `7`, `[]`, `{}`, `{"metadata": 7}`, `{"metadata": {"name": ""}}`, `{"metadata": {"name": "` + long + `"}}`,
		`{"metadata": {"name": "x", "creationTimestamp": "yesterday"}}`,
	} {
		for _, s := range w.sources() {
			if err := s.change(json.RawMessage(text), false); err != nil {
				t.Errorf("%s: %.80s: %v", s.name, text, err)
			}
		}
	}
	for _, spec := range []string{
		`null`, `7`, `{"cidr": "nonsense"}`, `{"cidr": "10.1.1.0/26", "allocations": 7}`, `{"cidr": "0.0.0.0/0", "allocations": [0, -1, 99999999999], "attributes": [{}]}`,
		`{"cidr": "255.255.255.192/26", "allocations": [` + strings.Repeat("0,", 100) + `0], "attributes": [{"secondary": {"pod": "a", "namespace": "b"}}]}`,
		`{"cidr": "::/0", "allocations": [0], "attributes": [{"handle_id": "` + long + `", "secondary": {"pod": "` + long + `", "node": "` + long + `"}}]}`,
		`{"cidr": "10.1.1.0/26", "allocations": [` + strings.Repeat("0,", maxBlock) + `0], "attributes": [{}]}`,
		`{"podCIDRs": ["x", "10.0.0.0/8", "::/0", "10.0.0.0/8"], "nodeName": 7}`, `{"blockSize": -7, "cidr": "10.1.0.0/16"}`, `{"blockSize": 999, "cidr": "::/0"}`,
	} {
		for _, s := range w.sources() {
			if err := s.change(json.RawMessage(`{"metadata": {"name": "hostile", "namespace": "x"}, "spec": `+spec+`, "status": `+spec+`}`), false); err != nil {
				t.Errorf("%s: %.80s: %v", s.name, spec, err)
			}
		}
		w.after(20 * time.Second)
		w.Of(netip.MustParseAddr("10.1.1.5"))
		w.Stats()
		w.Findings()
	}
	if r, _ := w.ipams[0].reservation(netip.MustParseAddr("::")); len(r.Pod) > 0 {
		t.Errorf("%.100s", r.Pod)
	}
}

// TestParse: the setting of the books.
func TestParse(t *testing.T) {
	for setting, want := range map[string]string{"auto": fmt.Sprint(Names(), true, nil), "off": "[] false <nil>", "kubernetes,calico": "[kubernetes calico] false <nil>"} {
		names, auto, err := Parse(setting)
		if got := fmt.Sprint(names, auto, err); got != want {
			t.Errorf("%s: %s, want %s", setting, got, want)
		}
	}
	if _, _, err := Parse("calico,etcd"); err == nil {
		t.Error("a book that there is not is accepted")
	}
}
