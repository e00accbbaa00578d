package main

import (
	"fmt"
	"io"

	"github.com/dupip/dupip/agent/api"
)

// maxFlushes bounds the commands of which there is one for each node.
const maxFlushes = 4

// printFlushes prints what makes nodes find the holder that stays.
func printFlushes(out io.Writer, c api.Conflict, removals []api.Removal) {
	choice := removals[0].Because == "" && len(removals) > 1
	printed := 0
	for _, r := range removals {
		for _, f := range r.Then {
			if printed++; printed > maxFlushes {
				return
			}
			begin := "Then,"
			if choice {
				begin = "If it was " + labels(c)[r.Holder] + ", then,"
			}
			wrapped(out, 2, fmt.Sprintf("  %s on node %s, which like the pods there goes on sending to the removed one for a while:", begin, clip(f.On, longNode)))
			printCommand(out, "    ", f.Command)
		}
	}
}
