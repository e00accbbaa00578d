package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// JSON and YAML have the same fields, also those of the part that documents share.
func TestYAMLHasTheFieldsOfJSON(t *testing.T) {
	doc := document.Bindings{Node: "n1", Bindings: []document.Binding{}, Coverage: document.Coverage{Asked: 3, Missing: []string{"n2"}, Partial: true}}
	for f, want := range map[Format]string{
		JSON: "{\n  \"node\": \"n1\",\n  \"bindings\": [],\n  \"asked\": 3,\n  \"missing\": [\n    \"n2\"\n  ],\n  \"partial\": true\n}\n",
		YAML: "node: n1\nbindings: []\nasked: 3\nmissing:\n  - n2\npartial: true\n",
	} {
		var out bytes.Buffer
		if done, err := f.Encode(&out, doc, false); !done || err != nil {
			t.Fatal(done, err)
		}
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", f, diff)
		}
	}
}

// JSON and YAML keep every name, but a terminal obeys none of it.
func TestDocumentsOfHostileTexts(t *testing.T) {
	const evil = "a\x1b[2J\r\nb\u202ec\u009b2J\x7fd\u2028é\U000e0001<&>"
	doc := document.Conflicts{Node: evil, Conflicts: []document.Conflict{{Holders: []document.Binding{{Holder: document.Holder{Netns: evil}}}}}}
	for _, f := range []Format{JSON, YAML} {
		for name, stream := range map[string]bool{"document": false, "event": true} {
			var out bytes.Buffer
			if done, err := f.Encode(&out, doc, stream); !done || err != nil {
				t.Fatal(done, err)
			}
			if text := strings.ReplaceAll(out.String(), "\n", ""); detector.Printable(text) != text {
				t.Errorf("%s as %s: %q", name, f, out.String())
			}
			var got document.Conflicts
			unmarshal := unmarshalYAML
			if f == JSON {
				unmarshal = json.Unmarshal
			}
			if err := unmarshal(out.Bytes(), &got); err != nil {
				t.Fatalf("%s as %s: %v", name, f, err)
			}
			if got.Node != evil || got.Conflicts[0].Holders[0].Netns != evil {
				t.Errorf("%s as %s: read back as %q", name, f, got.Node)
			}
		}
	}
}

// What looks like something else stays a text.
func TestTextsInYAML(t *testing.T) {
	want := []string{"", "true", "null", "~", "1e3", "0x10", "010", "10.0.0.1", "fd00::1", "02:00:00:00:00:01", "12:30:45", "2026-11-28", "- a", "a: b", "#", " a ", "a\nb", "*", "&a", "!a", "%", "@", "<<", "yes"}
	var out bytes.Buffer
	if _, err := YAML.Encode(&out, document.Coverage{Missing: want}, false); err != nil {
		t.Fatal(err)
	}
	var got document.Coverage
	if err := unmarshalYAML(out.Bytes(), &got); err != nil || !slices.Equal(got.Missing, want) {
		t.Errorf("read back as %q, %v, from\n%s", got.Missing, err, out.String())
	}
	out.Reset()
	command := strings.Repeat("kubectl -n a-long-namespace delete pod ", 10) + "x"
	if _, err := YAML.Encode(&out, document.Step{Command: command}, false); err != nil || !strings.Contains(out.String(), "command: "+command+"\n") {
		t.Errorf("a command is folded: %v\n%s", err, out.String())
	}
}

func BenchmarkYAML(b *testing.B) {
	doc := document.Bindings{Bindings: make([]document.Binding, 5000)}
	for b.Loop() {
		if _, err := YAML.Encode(io.Discard, doc, false); err != nil {
			b.Fatal(err)
		}
	}
}

// unmarshalYAML reads YAML with the fields of JSON.
func unmarshalYAML(data []byte, into any) error {
	var v any
	if err := yaml.Unmarshal(data, &v); err != nil {
		return err
	}
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}
