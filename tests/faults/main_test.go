// Package faults tests clusters of real agents in the netns lab under faults: it disconnects nodes,
// drops packets, kills agents and forges messages between them. Real duplicates must be found as
// soon as possible. Nothing else may be confirmed, and a confirmed conflict must neither end nor be
// raised again while it lasts.
package faults

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// patience is how long anything that has to happen may take on a busy machine.
var patience = lab.Patience(20 * time.Second)

// healTime is how long nodes that can reach each other again may take to see each other: lost members
// are retried every 30 s, and a member whose broadcasts were lost may need two push/pull exchanges.
var healTime = lab.Patience(150 * time.Second)

// healPause is how long a node that did not answer gets no further request.
var healPause = lab.Patience(30 * time.Second)

// atOnce is how many clusters there are at the same time: they mostly wait.
const atOnce = "4"

func TestMain(m *testing.M) {
	for variable, play := range map[string]func(string) error{rogueVariable: rogue, impostorVariable: impostor} {
		if orders := os.Getenv(variable); orders != "" {
			if err := play(orders); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		}
	}
	flag.Parse()
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == "test.parallel" })
	if !set {
		_ = flag.Lookup("test.parallel").Value.Set(atOnce)
	}
	os.Exit(lab.Main(m))
}

// eventually polls until ok returns nil, and fails the test with its last error when that
// takes too long.
func eventually(t *lab.T, within time.Duration, what string, ok func() error) {
	t.Helper()
	if err := lab.Poll(t.Context(), within, ok); err != nil {
		t.Fatal(fmt.Errorf("%s: %w", what, err))
	}
}
