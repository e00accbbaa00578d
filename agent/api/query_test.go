package api_test

import (
	"net/netip"
	"testing"

	"github.com/dupip/dupip/agent/api"
)

// TestSelects: what a query is about.
func TestSelects(t *testing.T) {
	web := &api.Pod{Namespace: "shop", Name: "web-0"}
	b := api.Binding{Network: "default", IP: "10.0.0.1", Pod: web}
	c := api.Conflict{Network: "default", IP: "10.0.0.1", State: "confirmed", Holders: []api.Binding{{Netns: "cni-1"}, b}}
	f := api.Finding{Network: "default", IP: "10.0.0.1", ReservedPod: web}
	for _, test := range []struct {
		q                          api.Query
		binding, conflict, finding bool
	}{
		{api.Query{}, true, true, true},
		{api.Query{IP: netip.MustParseAddr("10.0.0.1")}, true, true, true},
		{api.Query{IP: netip.MustParseAddr("10.0.0.2")}, false, false, false},
		{api.Query{Prefix: netip.MustParsePrefix("10.0.0.0/24")}, true, true, true},
		{api.Query{Prefix: netip.MustParsePrefix("fd00::/8")}, false, false, false},
		{api.Query{Network: "default"}, true, true, true},
		{api.Query{Network: "storage"}, false, false, false},
		{api.Query{Namespace: "shop"}, true, true, true},
		{api.Query{Namespace: "shop", Pod: "web-0"}, true, true, true},
		{api.Query{Pod: "shop/web-0"}, true, true, true},
		{api.Query{Pod: "other/web-0"}, false, false, false},
		{api.Query{Namespace: "other"}, false, false, false},
		{api.Query{State: "confirmed"}, true, true, true},
		{api.Query{State: "suspected"}, true, false, true},
	} {
		if got := test.q.SelectsBinding(b); got != test.binding {
			t.Errorf("%+v: a binding is selected: %t", test.q, got)
		}
		if got := test.q.SelectsConflict(c); got != test.conflict {
			t.Errorf("%+v: a conflict is selected: %t", test.q, got)
		}
		if got := test.q.SelectsFinding(f); got != test.finding {
			t.Errorf("%+v: a finding is selected: %t", test.q, got)
		}
	}
	if (api.Query{Namespace: "shop"}).SelectsBinding(api.Binding{IP: "10.0.0.1"}) {
		t.Error("a holder without a pod is selected by a namespace")
	}
}
