package detector

import (
	"encoding/json"
	"reflect"
	"testing"
)

// roundTrip holds every value up to last to have a name of its own that reads back. An unknown name becomes no value.
func roundTrip[E interface {
	enum
	String() string
}](t *testing.T, last E, names []string) {
	t.Helper()
	seen := map[string]bool{}
	for e := E(1); e <= last; e++ {
		name := e.String()
		if seen[name] || name == "" || name != names[e] {
			t.Errorf("%T(%d) is %q", e, e, name)
		}
		seen[name] = true
		if back := valueOf[E]([]byte(name), names); back != e {
			t.Errorf("%T %q reads back as %v", e, name, back)
		}
	}
	if len(names) != int(last)+1 {
		t.Errorf("%T has %d names", last, len(names))
	}
	if e := valueOf[E]([]byte("no such"), names); e <= last {
		t.Errorf("%T: %v", last, e)
	}
}

func TestNames(t *testing.T) {
	roundTrip(t, Host, evidenceNames)
	roundTrip(t, NodeNode, scopeNames)
	roundTrip(t, Resolved, stateNames)
	type all struct {
		Evidence Evidence
		Scope    Scope
		State    State
		Given    []Given
	}
	for text, want := range map[string]all{
		`{"Evidence":"host","Scope":"pod-host","State":"resolved","Given":[true,false,null]}`: {Host, PodHost, Resolved, []Given{GivenYes, GivenNo, GivenUnknown}},
		`{"Evidence":"","Scope":"","State":"","Given":[]}`:                                    {Given: []Given{}},
	} {
		var got all
		if err := json.Unmarshal([]byte(text), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s reads as %+v, %v", text, got, err)
		}
		if back, err := json.Marshal(got); string(back) != text || err != nil {
			t.Errorf("%+v is %s, %v; want %s", got, back, err, text)
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
