package query

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
	"time"
)

// A watch ends when its reader has gone, also if there is nothing to write, and not before.
func TestReaderGone(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	failed, ended := make(chan error, 1), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		defer close(ended)
		output{writer, func(err error) { failed <- err }}.followReader(ctx)
	}()
	select {
	case err := <-failed:
		t.Fatalf("%v, and the reader is there", err)
	case <-time.After(100 * time.Millisecond):
	}
	reader.Close()
	select {
	case err := <-failed:
		if !errors.Is(err, syscall.EPIPE) {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the watch goes on without a reader")
	}
	cancel()
	<-ended
}
