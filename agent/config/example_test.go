package config

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func readExample(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// The example is valid and means what its comments say.
func TestExample(t *testing.T) {
	c, err := Parse([]byte(readExample(t)))
	if err != nil {
		t.Fatal(err)
	}
	want := []Network{{"storage", Cluster, false}, {"net1@br1", Cluster, true}}
	if diff := cmp.Diff(want, c.Networks()); diff != "" {
		t.Errorf("networks (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(DefaultLimits(), c.limits); diff != "" {
		t.Errorf("the limits in the example are not the defaults (-default +example):\n%s", diff)
	}
	storage := Subject{Interface: "cali1", Peer: "net1", Bridge: "br-storage"}
	if n, ok := c.Network(storage, ip("10.9.1.1")); !ok || n.Name != "storage" {
		t.Errorf("%v, %t", n, ok)
	}
	if n, ok := c.HostNetwork("br-storage", ip("10.9.0.1")); !ok || n.Name != "storage" || n.Solicit {
		t.Errorf("%v, %t", n, ok)
	}
}

// Every key of the schema is in the example, and the example's comments name the bounds.
func TestExampleIsComplete(t *testing.T) {
	text := readExample(t)
	body, err := parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var d decoder
	top := d.mapping(body, "", topKeys)
	network := d.mapping(d.list(top["networks"], "", maxNetworks)[0], "", networkKeys)
	for _, section := range []struct {
		name string
		keys []string
		has  int
	}{
		{"top", topKeys, len(top)},
		{"networks[]", networkKeys, len(network)},
		{"match", matchKeys, len(d.mapping(network["match"], "", matchKeys))},
		{"ignore", ignoreKeys, len(d.mapping(top["ignore"], "", ignoreKeys))},
		{"limits", limitKeys, len(d.mapping(top["limits"], "", limitKeys))},
	} {
		if section.has != len(section.keys) {
			t.Errorf("%s: the example has %d of the keys %v", section.name, section.has, section.keys)
		}
	}
	lines := strings.Split(text, "\n")
	for _, l := range limits {
		for n, line := range lines {
			if strings.HasPrefix(strings.TrimSpace(line), l.key+":") && !strings.Contains(lines[n-1], rangeText(l)) {
				t.Errorf("%s: the comment %q does not say %q", l.key, lines[n-1], rangeText(l))
			}
		}
	}
}
