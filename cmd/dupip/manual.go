//go:build dupip_manual

package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra/doc"
)

// A build with the tag dupip_manual is no dupip: it writes the manual pages into the folder of its only argument. Their date is that of
// SOURCE_DATE_EPOCH.
func init() {
	root := newRoot()
	root.DisableAutoGenTag = true
	if err := doc.GenManTree(root, &doc.GenManHeader{Section: "8", Source: "dupip", Manual: "dupip"}, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "manual:", err)
		os.Exit(1)
	}
	os.Exit(0)
}
