package detector

import (
	"encoding"
	"encoding/json"
	"errors"
	"testing"
)

func roundTrip[E interface {
	enum
	encoding.TextMarshaler
	String() string
}, P interface {
	*E
	encoding.TextUnmarshaler
}](t *testing.T, last E) {
	t.Helper()
	seen := map[string]bool{}
	for e := E(1); e <= last; e++ {
		text, err := e.MarshalText()
		if err != nil || string(text) != e.String() || seen[string(text)] || len(text) == 0 {
			t.Errorf("%T(%d) is %q, %q, %v", e, e, text, e.String(), err)
		}
		seen[string(text)] = true
		var back E
		if err := P(&back).UnmarshalText(text); err != nil || back != e {
			t.Errorf("%T %q reads back as %v, %v", e, text, back, err)
		}
	}
	beyond := last + 1
	if _, err := beyond.MarshalText(); !errors.Is(err, ErrUnknownName) {
		t.Errorf("%T(%d): %v", beyond, beyond, err)
	}
	if err := P(&beyond).UnmarshalText([]byte("no such")); !errors.Is(err, ErrUnknownName) {
		t.Errorf("%T: %v", beyond, err)
	}
}

func TestNames(t *testing.T) {
	roundTrip[Evidence](t, Host)
	roundTrip[Scope](t, PodHost)
	roundTrip[State](t, Resolved)
	roundTrip[EventKind](t, EventFaded)
	roundTrip[Purpose](t, Refresh)
	roundTrip[NoteKind](t, NoteConflict)
	if e, err := ParseEvidence("host"); e != Host || err != nil {
		t.Error(e, err)
	}
	if s, err := ParseScope("pod-host"); s != PodHost || err != nil {
		t.Error(s, err)
	}
	if s, err := ParseState("resolved"); s != Resolved || err != nil {
		t.Error(s, err)
	}
	for r := RefusedInterfaceFull; r < refusals; r++ {
		if s := r.String(); s != refusalNames[r] {
			t.Errorf("refusal %d is %q", r, s)
		}
	}
	if got := Evidence(9).String(); got != "evidence(9)" {
		t.Errorf("unknown evidence is %q", got)
	}
}

func TestMAC(t *testing.T) {
	m := MAC{2, 0, 0, 0, 0, 1}
	text, err := json.Marshal(m)
	if string(text) != `"02:00:00:00:00:01"` || err != nil {
		t.Fatalf("%s %v", text, err)
	}
	var back MAC
	if err := json.Unmarshal(text, &back); back != m || err != nil {
		t.Errorf("%v %v", back, err)
	}
	if err := json.Unmarshal([]byte(`""`), &back); back != (MAC{}) || err != nil || back.String() != "" {
		t.Errorf("%v %v", back, err)
	}
	for _, bad := range []string{"x", "02:00:00:00:00:00:00:01"} {
		if err := back.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q is taken for a MAC", bad)
		}
	}
}

func TestHolderNames(t *testing.T) {
	h := Holder{
		ID: HolderID{Node: "n1", Netns: 7}, Interface: Interface{3, 1}, InterfaceName: "veth3",
		NetnsName: "cni-1", Pod: Pod{Namespace: "shop", Name: "cart-0"},
	}
	want := []string{"shop/cart-0", "cni-1", "veth3", "netns 7", "interface 3"}
	strip := []func(){
		func() { h.Pod = Pod{} },
		func() { h.NetnsName = "" },
		func() { h.InterfaceName = "" },
		func() { h.ID.Netns = 0 },
		func() {},
	}
	for i, next := range strip {
		if got := h.String(); got != want[i] {
			t.Errorf("holder is %q, want %q", got, want[i])
		}
		next()
	}
	if got := (Pod{Name: "alone"}).String(); got != "alone" {
		t.Errorf("pod is %q", got)
	}
}
