package deploy_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// schemaNode is what is read of values.schema.json.
type schemaNode struct {
	Properties map[string]schemaNode
	Additional any `json:"additionalProperties"`
}

// Each value of the chart is in its schema and is explained, and each key of the schema is
// a value: what can be set can be found by reading values.yaml.
func TestChartValuesAreExplained(t *testing.T) {
	var schema schemaNode
	if err := json.Unmarshal([]byte(readChartFile(t, chartDir+"/values.schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	// Helm's own.
	delete(schema.Properties, "global")
	var file yaml.Node
	if err := yaml.Unmarshal([]byte(readChartFile(t, chartDir+"/values.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	checkValues(t, "", file.Content[0], schema)
}

func checkValues(t *testing.T, at string, node *yaml.Node, schema schemaNode) {
	t.Helper()
	if schema.Additional != false {
		t.Errorf("%s: the schema takes any key", at)
	}
	if node.Kind != yaml.MappingNode {
		t.Errorf("%s is no mapping", at)
		return
	}
	missing := maps.Clone(schema.Properties)
	for pair := range slices.Chunk(node.Content, 2) {
		key, value := pair[0].Value, pair[1]
		path := at + "." + key
		below, known := schema.Properties[key]
		if !known {
			t.Errorf("%s is not in the schema", path)
		}
		delete(missing, key)
		// Of a container's resources everybody knows the keys.
		if value.Kind == yaml.MappingNode && len(value.Content) > 0 && len(below.Properties) > 0 && key != "resources" {
			checkValues(t, path, value, below)
		} else if pair[0].HeadComment+pair[0].LineComment+value.LineComment == "" {
			t.Errorf("%s has no comment", path)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(missing)) {
		t.Errorf("%s.%s is in the schema only", at, key)
	}
}

// The table of the README has a row for each value, and each row four cells: a "|" in an explanation would end it.
func TestChartReadme(t *testing.T) {
	var rows int
	for line := range strings.Lines(readChartFile(t, chartDir+"/README.md")) {
		if cells, isRow := strings.CutPrefix(line, "| "); isRow {
			rows++
			if n := strings.Count(cells, "|"); n != 4 {
				t.Errorf("a row has %d cells: %s", n, line)
			}
		}
	}
	if rows < 50 {
		t.Errorf("the README has %d rows", rows)
	}
}
