// Package schema makes the JSON schema of all documents from their Go types. It is about what the agent's API and
// `-o json` print, not about files or gossip.
package schema

import (
	"encoding"
	"encoding/json"
	"reflect"
	"time"

	"github.com/invopop/jsonschema"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// File is the published schema, from the folder of the tests.
const File = "../deploy/api.schema.json"

const about = "The documents of dupip's commands with -o json, which are those of the agent's API. Each is one of those in $defs " +
	"that anyOf names. Later versions add fields and remove none, so ignore fields that you do not know. A field that is not " +
	"required is absent if its value is unknown, empty or zero."

// documents are the types of all documents.
var documents = []any{
	document.Audit{},
	document.BindingEvent{},
	document.Bindings{},
	document.Configuration{},
	document.ConflictEvent{},
	document.Conflicts{},
	document.Error{},
	document.Captures{},
	document.Explanation{},
	document.Nodes{},
	document.Status{},
	document.Version{},
	document.DoctorReport{},
}

// Make returns the schema. A strict one allows no other fields than those of this version. Its descriptions are the comments in the
// Go sources; tests is the path of the folder of the tests, empty for a schema without descriptions.
func Make(strict bool, tests string) ([]byte, error) {
	r := jsonschema.Reflector{Anonymous: true, AllowAdditionalProperties: !strict, Mapper: scalar}
	if tests != "" {
		for _, dir := range []string{"/../document", "/../detector/cluster"} {
			if err := r.AddGoComments("github.com/dupip/dupip/tests", tests+dir, jsonschema.WithFullComment()); err != nil {
				return nil, err
			}
		}
	}
	all := jsonschema.Schema{
		Version: jsonschema.Version, Title: "dupip", Description: about,
		Definitions: make(jsonschema.Definitions),
	}
	for _, doc := range documents {
		s := r.Reflect(doc)
		for name, definition := range s.Definitions {
			all.Definitions[name] = definition
		}
		all.AnyOf = append(all.AnyOf, &jsonschema.Schema{Ref: "#/$defs/" + reflect.TypeOf(doc).Name()})
	}
	data, err := json.MarshalIndent(all, "", "  ")
	return append(data, '\n'), err
}

// scalar returns the schema of a type that writes itself as one value, nil for any other.
func scalar(t reflect.Type) *jsonschema.Schema {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return nil // jsonschema knows it
	case t == reflect.TypeFor[detector.Given]():
		return &jsonschema.Schema{Type: "boolean"}
	case t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return &jsonschema.Schema{Type: "string"}
	}
	return nil
}
