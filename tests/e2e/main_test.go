// Package e2e tests the whole agent on real packets: what it must not disturb (the traffic that it
// observes, CNI plugins), what it reports about problems, what it leaves behind, and how fast it is.
//
// Package scenarios tests whether a situation is a conflict.
package e2e

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// patience is how long anything that has to happen may take on a busy machine.
var patience = lab.Patience(15 * time.Second)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

// within is a context for calls that have to return in time.
func within(t *lab.T, d time.Duration) context.Context {
	ctx, cancel := lab.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
