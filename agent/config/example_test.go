package config

import (
	"cmp"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"
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
	if diff := gocmp.Diff([]Network{storage, {"net1@br1", Cluster, true}}, c.Networks()); diff != "" {
		t.Errorf("networks (-want +got):\n%s", diff)
	}
	if diff := gocmp.Diff(new(Config).Limits(), c.Limits()); diff != "" {
		t.Errorf("the limits in the example are not the defaults (-default +example):\n%s", diff)
	}
	if n, ok := c.Network(Subject{Interface: "cali1", Peer: "net1", Bridge: "br-storage"}, ip("10.9.1.1")); !ok || n != storage {
		t.Errorf("%v, %t", n, ok)
	}
	if n, ok := c.HostNetwork("br-storage", ip("10.9.0.1")); !ok || n != storage {
		t.Errorf("%v, %t", n, ok)
	}
}

// The example has every key of the format, errors name them, and the comments name the
// allowed values of limits.
func TestExampleIsComplete(t *testing.T) {
	text := readExample(t)
	var f file
	d := decoder{paths: make(map[yaml.Mark]string), lines: make(map[string]int)}
	if d.decode([]byte(text), &f); len(d.problems) > 0 {
		t.Fatal(d.problems)
	}
	for _, section := range []any{f, f.Networks[0], *f.Networks[0].Match, f.Segments, f.Ignore, f.Limits} {
		var names []string
		v := reflect.ValueOf(section)
		for field, value := range v.Fields() {
			names = append(names, cmp.Or(field.Tag.Get("yaml"), strings.ToLower(field.Name)))
			if value.IsZero() {
				t.Errorf("%s: the example has no %s", v.Type(), field.Name)
			}
		}
		if diff := gocmp.Diff(strings.Join(names, ", "), keys[v.Type().String()]); diff != "" {
			t.Errorf("%s (-fields +keys in errors):\n%s", v.Type(), diff)
		}
	}
	lines := strings.Split(text, "\n")
	for path, most := range maxLimits {
		at := slices.IndexFunc(lines, func(line string) bool {
			return strings.HasPrefix(line, "  "+strings.TrimPrefix(path, "limits.")+":")
		})
		if want := fmt.Sprintf("1 to %d", most); at < 1 || !strings.Contains(lines[at-1], want) {
			t.Errorf("%s: the comment above line %d does not say %q", path, at+1, want)
		}
	}
}
