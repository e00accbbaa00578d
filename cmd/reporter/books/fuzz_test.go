package books

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document/say"
)

// FuzzObject: whatever an object of the API server has, it is taken or counted as broken, what is reserved are addresses that the book finds
// again, findings and their commands can be printed, and nothing of an object is left when it is deleted.
func FuzzObject(f *testing.F) {
	names := make(map[string]int)
	for n, s := range newWorld(f).sources() {
		names[s.name] = n
	}
	add := func(resource, text string) { f.Add(byte(names[resource]), []byte(text)) }
	const meta = `{"metadata":{"name":"a","namespace":"shop","uid":"u"},`
	add("pods", meta+`"spec":{"nodeName":"n1"},"status":{"phase":"Running","podIP":"10.1.1.9","podIPs":[{"ip":"10.1.1.9"},{"ip":"10.1.2.9"}]}}`)
	add("nodes", `{"metadata":{"name":"n1","uid":"u"},"spec":{"podCIDR":"10.1.1.0/24","podCIDRs":["10.1.1.0/24","fd00::/64"]},"status":{"nodeInfo":{"bootID":"b"}}}`)
	add(calicoPools, `{"metadata":{"name":"p"},"spec":{"cidr":"10.0.0.0/8","blockSize":26}}`)
	add(calicoBlocks, blockText(9, allocated1))
	add(calicoBlocks, blockText(9, `"allocations": [0, null, -1, 7], "attributes": [{"handle_id": "h\u001b", "secondary": {"namespace": "x;reboot", "pod": "$(reboot)", "node": "\u202e"}}], "unallocated": [63, 64]`))
	for name := range names {
		add(name, `{"metadata":{"name":"10-1-2-9"},"spec":{"range":"10.1.2.0/24","allocations":{"9":{"podref":"shop/web","id":"c"},"-1":{"podref":"x"}},"podref":"shop/web"}}`)
		add(name, `{"metadata":{"name":"n2","ownerReferences":[{"kind":"Node","name":"n2","uid":"u2"}]},"spec":{"ipam":{"podCIDRs":["10.1.3.0/24"],"pool":{"10.1.2.9":{"owner":"shop/by"}}}},"status":{"ipam":{"used":{"10.1.2.8":{"owner":"shop/web"}}},"networkContainers":[{"primaryIP":"10.1.2.8/32","ipAssignments":[{"ip":"10.1.2.7","name":"a"}]}]}}`)
	}
	f.Fuzz(func(t *testing.T, resource byte, text []byte) {
		w := newWorld(t)
		all := w.sources()
		s := all[int(resource)%len(all)]
		total := func() (n int) {
			for key, of := range s.objects {
				if n += of; key == "" || of < 0 {
					t.Errorf("%d reservations of %q", of, key)
				}
			}
			return n
		}
		before, known := total(), slices.Collect(maps.Keys(s.objects))
		if err := s.change(json.RawMessage(text), false); err != nil {
			t.Skip(err)
		}
		if s.total != total() {
			t.Errorf("%d reservations, and %d are counted", total(), s.total)
		}
		for _, book := range w.ipams {
			for r := range book.reservations() {
				if !r.IP.IsValid() || r.IP.Zone() != "" || r.IP.Is4In6() {
					t.Errorf("%s has reserved %s", book.name, r.IP)
				}
				// The objects of nodes may be at odds with themselves.
				if _, found := book.reservation(r.IP); !found && book.nodes == nil {
					t.Errorf("%s does not find %s", book.name, r.IP)
				}
			}
		}
		w.after(time.Minute)
		for _, finding := range w.Findings().Findings {
			words, steps := say.Finding(finding)
			for _, step := range steps {
				words += step.Text + step.Command
			}
			if words = strings.ReplaceAll(words, "\n", ""); detector.Printable(words) != words {
				t.Errorf("it says %q", words)
			}
		}
		var o object
		if json.Unmarshal(text, &o) != nil || !o.named() || slices.Contains(known, o.key()) {
			return // an object of the world's
		}
		if err := s.change(json.RawMessage(text), true); err != nil || s.total != before || len(s.broken) > 0 && !s.broken[""] {
			t.Errorf("deleted: %d reservations, want %d, broken %v, %v", s.total, before, s.broken, err)
		}
	})
}
