//go:build dupip_manual

package main

import (
	"cmp"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
)

// A build with the tag dupip_manual is no dupip: it writes the manual pages into the folder of its only argument. Their date is that of
// SOURCE_DATE_EPOCH.
func init() {
	root := newRoot()
	root.DisableAutoGenTag = true
	prepare(root)
	if err := doc.GenManTree(root, &doc.GenManHeader{Section: "8", Source: "dupip", Manual: "dupip"}, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "manual:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// plain makes a text Markdown, which it is taken for: the name of a variable has no emphasis. Commands after a tab are that already.
func plain(text string) (markdown string) {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "\t") {
			line = strings.NewReplacer("_", `\_`, "*", `\*`, "<", `\<`).Replace(line)
		}
		markdown += line
	}
	return markdown
}

func prepare(c *cobra.Command) {
	c.Short, c.Long = plain(c.Short), plain(cmp.Or(c.Long, c.Short))
	if c.HasSubCommands() {
		c.Use = c.Name() + " COMMAND"
	}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		f.Usage = plain(f.Usage)
		if f.Name == "by" { // by default the one who runs the command, who is not the one who builds the page
			f.DefValue = ""
		}
	})
	for _, sub := range c.Commands() {
		prepare(sub)
	}
}
