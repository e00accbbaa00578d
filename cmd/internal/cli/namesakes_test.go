package cli

import (
	"slices"
	"testing"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// The boots of two nodes with the name n1.
const bootA, bootB = "aaaaaaaa-1", "bbbbbbbb-2"

// Two nodes have one name, and one of them has a holder: the text that says where packets go shows their boot ids.
func TestRoutesOfNamesakes(t *testing.T) {
	c := twoPods("10.0.0.1")
	c.Holders[0].BootID = bootA
	c.Routes = []document.Route{
		toHolder("n1", 0, "vethweb-0"), {Node: "n2", To: "node", ToNode: "n1", ToBootID: bootA}, {Node: "n3", To: "node", ToNode: "n1", ToBootID: bootB},
	}
	c.Routes[0].BootID = bootA
	want := "Packets to it go from n1 (boot aaaaaaaa) to shop/web-0, from n2 to node n1 (boot aaaaaaaa), from n3 to node n1 (boot bbbbbbbb). " +
		"shop/web-1 gets no traffic from n1 (boot aaaaaaaa), n2 and n3."
	if got := routes(c); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	// The node itself has the address, and not its namesake.
	c.Holders[0].Evidence = detector.Host
	c.Routes = append(c.Routes[:1:1], toHolder("n1", 0, "eth0"))
	c.Routes[1].BootID = bootB
	want = "Packets to it go from n1 (boot aaaaaaaa) to itself, from n1 (boot bbbbbbbb) itself to node n1 by eth0. " +
		"shop/web-1 gets no traffic from n1 (boot aaaaaaaa) and n1 (boot bbbbbbbb) itself."
	if got := routes(c); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Notes have the boots of such nodes, also of one that has only holders.
func TestNotesOfNamesakes(t *testing.T) {
	on := func(node, boot string) *document.Holder {
		return &document.Holder{Node: node, BootID: boot, Netns: "cni-" + boot[:1]}
	}
	story := document.Story{Nodes: []string{"n1 (boot aaaaaaaa)", "n1 (boot bbbbbbbb)", "n2"}, Notes: []document.Note{
		{Node: "n1", BootID: bootA, Holder: on("n1", bootA), Text: "first seen"},
		{Node: "n1", BootID: bootA, Holder: on("n1", bootB), Text: "answered"},
		{Node: "n2", BootID: "c", Text: "confirmed"},
	}}
	want := []string{"[n1 (boot aaaaaaaa)] cni-a: first seen", "[n1 (boot aaaaaaaa)] cni-b on n1 (boot bbbbbbbb): answered", "[n2] confirmed"}
	if got := Notes(story); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	story.Bindings = []document.Binding{{Holder: *on("n1", bootB)}}
	story.Notes, want = slices.Delete(story.Notes, 1, 2), slices.Delete(want, 1, 2)
	if got := Notes(story); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A pod is not taken for one of another node, because the nodes and the netns have the same names.
func TestDetectionFailedOfNamesakes(t *testing.T) {
	e := document.Explanation{
		Node: "n1", BootID: bootA, Configured: []document.Configured{{Network: "default", Netns: "cni-9", Lost: true}},
		Stories: []document.Story{{Network: "default", Former: []document.Binding{
			{Holder: document.Holder{Node: "n1", BootID: bootA, Netns: "cni-9"}},
			{Holder: document.Holder{Node: "n1", BootID: bootB, Netns: "cni-9"}},
		}}},
	}
	const want = "cni-9: duplicate address detection failed in its kernel, which does not use the address. " +
		"cni-9 on n1 (boot bbbbbbbb) was seen with the address, and has it no more."
	if got := Causes(e); !slices.Equal(got, []string{want}) {
		t.Errorf("%q, want %q", got, want)
	}
}
