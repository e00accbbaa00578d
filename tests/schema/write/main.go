// Command write writes the published schema, as `make schema` does. It runs in the folder tests.
package main

import (
	"fmt"
	"os"

	"github.com/dupip/dupip/tests/schema"
)

func main() {
	data, err := schema.Make(false, ".")
	if err == nil {
		err = os.WriteFile(schema.File, data, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "schema:", err)
		os.Exit(1)
	}
}
