// Command dupip finds duplicate pod IPs by looking at packets.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/dupip/dupip/detector"
)

// exitError ends the program with a code and without a message.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit %d", int(e)) }

func main() {
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// A second signal ends the program at once, but not within a second: timeout(1) sends two.
	context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, stop) })
	err := newRoot().ExecuteContext(ctx)
	if code, ok := errors.AsType[exitError](err); ok {
		return int(code)
	}
	if err != nil {
		printError(os.Stderr, err)
		return 1
	}
	return 0
}

// printError prints an error, which may contain text of other nodes or of the agent.
func printError(w io.Writer, err error) {
	lines := strings.Split(err.Error(), "\n")
	for n, line := range lines {
		lines[n] = detector.Printable(line)
	}
	fmt.Fprintln(w, "dupip:", strings.Join(lines, "\n"))
}
