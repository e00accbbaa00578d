// Command dashboard writes deploy/dashboard.json, the Grafana dashboard of dupip, from the
// rows, panels and queries in this folder. It owns how they look and where they are; what
// the metrics mean is the agent's matter, and whether the queries are right that of
// tests/dashboard.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
)

//go:generate go run . ../dashboard.json

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run ./deploy/dashboard FILE")
		os.Exit(2)
	}
	text, err := document()
	if err == nil {
		err = os.WriteFile(os.Args[1], text, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "dashboard:", err)
		os.Exit(1)
	}
}

// document is the file's content.
func document() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	// Queries compare: readers of the file shall see a < b.
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(newDashboard(rows())); err != nil {
		return nil, fmt.Errorf("writing the dashboard: %w", err)
	}
	return b.Bytes(), nil
}
