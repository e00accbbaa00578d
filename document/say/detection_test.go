package say

import (
	"slices"
	"testing"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// Why duplicate address detection failed is not known: the sentence says who has the address now, or had it.
func TestDetectionFailed(t *testing.T) {
	const failed = "cni-9: duplicate address detection failed in its kernel, which does not use the address. "
	const unseen = failed + "Another holder was not seen: perhaps the pod's own packet came back (a hairpin port, a loop), or one has the " +
		"address that dupip does not observe."
	one := func(node, netns string, evidence detector.Evidence) document.Binding {
		return document.Binding{Holder: document.Holder{Node: node, Netns: netns, Interface: "veth1"}, Evidence: evidence}
	}
	gone := func(node, netns string) document.Binding { return one(node, netns, detector.Announced) }
	for name, test := range map[string]struct {
		network          string
		bindings, former []document.Binding
		want             string
	}{
		"nobody":              {"default", nil, nil, unseen},
		"in another network":  {"blue", []document.Binding{one("n1", "cni-1", detector.Announced)}, []document.Binding{gone("n1", "cni-2")}, unseen},
		"only forwarded":      {"default", []document.Binding{one("n1", "cni-1", detector.Forwarded)}, []document.Binding{gone("n1", "cni-1")}, unseen},
		"one now":             {"default", []document.Binding{one("n1", "cni-1", detector.Announced)}, []document.Binding{gone("n1", "cni-1"), gone("n1", "cni-2")}, failed + "Now cni-1 has the address."},
		"the node":            {"default", []document.Binding{one("n1", "host", detector.Host)}, nil, failed + "Now node n1 has the address."},
		"two now":             {"default", []document.Binding{one("n1", "cni-1", detector.Data), one("n2", "cni-2", detector.Announced)}, nil, failed + "Now cni-1 on n1 and cni-2 on n2 have the address."},
		"itself":              {"default", []document.Binding{one("n1", "cni-9", detector.Announced)}, nil, failed + "Now the pod itself, by its interface veth1, has the address."},
		"one before":          {"default", nil, []document.Binding{gone("n1", "cni-1"), gone("n1", "")}, failed + "cni-1 was seen with the address, and has it no more."},
		"itself before":       {"default", nil, []document.Binding{gone("n1", "cni-9")}, unseen},
		"two before":          {"default", nil, []document.Binding{gone("n2", "cni-1"), gone("n1", "cni-1")}, failed + "cni-1 and cni-1 on n2 were seen with the address, and have it no more."},
		"a namesake of a pod": {"default", nil, []document.Binding{gone("n2", "cni-9")}, failed + "cni-9 on n2 was seen with the address, and has it no more."},
	} {
		e := document.Explanation{
			Node: "n1", Stories: []document.Story{{Network: test.network, Bindings: test.bindings, Former: test.former}},
			Configured: []document.Configured{{Network: "default", Netns: "cni-9", Lost: true}},
		}
		if got := detectionFailures(e); len(got) != 1 || got[0] != test.want {
			t.Errorf("%s:\n%q, want\n%q", name, got, test.want)
		}
	}
}

// Why does not say what to do: about a drill and a suspected conflict Do says that.
func TestDoWithoutJudgement(t *testing.T) {
	for want, c := range map[string]document.Conflict{
		"Nothing: it is a drill, which ends by itself.":                  {State: detector.Confirmed, Drill: true},
		"Wait. It is suspected, not confirmed: one has to answer again.": {State: detector.Suspected, Pending: "one has to answer again"},
	} {
		if do := Do(&c); len(do) != 1 || do[0].Head() != want || Why(document.Explanation{}, document.Story{Conflict: &c}) != nil {
			t.Errorf("%+v, why %q; want %q", do, Why(document.Explanation{}, document.Story{Conflict: &c}), want)
		}
	}
}

// A pod is not taken for one of another node, because the nodes and the netns have the same names.
func TestDetectionFailedOfNamesakes(t *testing.T) {
	e := document.Explanation{
		Node: "n1", BootID: boot("a"), Configured: []document.Configured{{Network: "default", Netns: "cni-9", Lost: true}},
		Stories: []document.Story{{Network: "default", Former: []document.Binding{
			{Holder: document.Holder{Node: "n1", BootID: boot("a"), Netns: "cni-9"}},
			{Holder: document.Holder{Node: "n1", BootID: boot("b"), Netns: "cni-9"}},
		}}},
	}
	const want = "cni-9: duplicate address detection failed in its kernel, which does not use the address. " +
		"cni-9 on n1 (boot bbbbbbbb) was seen with the address, and has it no more."
	if got := detectionFailures(e); !slices.Equal(got, []string{want}) {
		t.Errorf("%q, want %q", got, want)
	}
}
