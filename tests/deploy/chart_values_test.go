package deploy_test

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
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
	file, err := parser.ParseBytes([]byte(readChartFile(t, chartDir+"/values.yaml")), parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	if len(file.Docs) != 1 {
		t.Fatalf("%d documents", len(file.Docs))
	}
	checkValues(t, "", file.Docs[0].Body, schema)
}

func checkValues(t *testing.T, at string, node ast.Node, schema schemaNode) {
	t.Helper()
	if schema.Additional != false {
		t.Errorf("%s: the schema takes any key", at)
	}
	values, ok := node.(*ast.MappingNode)
	if !ok {
		t.Errorf("%s is no mapping", at)
		return
	}
	missing := maps.Clone(schema.Properties)
	for _, value := range values.Values {
		key := value.Key.String()
		path := at + "." + key
		below, known := schema.Properties[key]
		if !known {
			t.Errorf("%s is not in the schema", path)
		}
		delete(missing, key)
		// Of a container's resources everybody knows the keys.
		if inner, ok := value.Value.(*ast.MappingNode); ok && len(inner.Values) > 0 && len(below.Properties) > 0 && key != "resources" {
			checkValues(t, path, value.Value, below)
		} else if value.GetComment() == nil {
			t.Errorf("%s has no comment", path)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(missing)) {
		t.Errorf("%s.%s is in the schema only", at, key)
	}
}
