package api_test

import (
	"net/netip"
	"testing"

	"github.com/dupip/dupip/detector"

	"github.com/dupip/dupip/document"
)

// TestSelects: what a query is about.
func TestSelects(t *testing.T) {
	web := &document.Pod{Namespace: "shop", Name: "web-0"}
	b := document.Binding{Network: "default", IP: netip.MustParseAddr("10.0.0.1"), Holder: document.Holder{Pod: web}}
	c := document.Conflict{Network: "default", IP: netip.MustParseAddr("10.0.0.1"), State: detector.Confirmed, Holders: []document.Binding{{Holder: document.Holder{Netns: "cni-1"}}, b}}
	f := document.Finding{CNINetwork: "default", IP: netip.MustParseAddr("10.0.0.1"), ReservedPod: web}
	for _, test := range []struct {
		q                          document.Query
		binding, conflict, finding bool
	}{
		{document.Query{}, true, true, true},
		{document.Query{IP: netip.MustParseAddr("10.0.0.1")}, true, true, true},
		{document.Query{IP: netip.MustParseAddr("10.0.0.2")}, false, false, false},
		{document.Query{Prefix: netip.MustParsePrefix("10.0.0.0/24")}, true, true, true},
		{document.Query{Prefix: netip.MustParsePrefix("fd00::/8")}, false, false, false},
		{document.Query{Network: "default"}, true, true, true},
		{document.Query{Network: "storage"}, false, false, false},
		{document.Query{Namespace: "shop"}, true, true, true},
		{document.Query{Namespace: "shop", Pod: "web-0"}, true, true, true},
		{document.Query{Pod: "shop/web-0"}, true, true, true},
		{document.Query{Pod: "other/web-0"}, false, false, false},
		{document.Query{Namespace: "other"}, false, false, false},
		{document.Query{State: "confirmed"}, true, true, true},
		{document.Query{State: "suspected"}, true, false, true},
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
	if (document.Query{Namespace: "shop"}).SelectsBinding(document.Binding{IP: netip.MustParseAddr("10.0.0.1")}) {
		t.Error("a holder without a pod is selected by a namespace")
	}
}
