package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// patience is how long anything that has to happen may take on a busy machine.
var patience = lab.Patience(15 * time.Second)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

// eventually polls until ok returns nil, and fails the test with its last error when
// that takes too long.
func eventually(t *lab.T, what string, ok func() error) {
	t.Helper()
	if err := poll(t.Context(), patience, ok); err != nil {
		t.Fatal(fmt.Errorf("%s: %w", what, err))
	}
}

func poll(ctx context.Context, timeout time.Duration, ok func() error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		err := ok()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// within is a context for calls that have to return in time.
func within(t *lab.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
