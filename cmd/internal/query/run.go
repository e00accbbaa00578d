package query

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/cmd/internal/cli"
	"github.com/dupip/dupip/detector"
)

// ExitError ends the program with a code and without a message.
type ExitError int

func (e ExitError) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// Run runs a program until it is done, its output fails, or SIGINT, SIGTERM or one of the other signals ends it. It returns the
// exit code.
func Run(root *cobra.Command, others ...os.Signal) int {
	ctx, stop := signal.NotifyContext(context.Background(), append(others, syscall.SIGINT, syscall.SIGTERM)...)
	defer stop()
	// A second signal ends the program at once, but not within a second: timeout(1) sends two.
	context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, stop) })
	ctx, end := context.WithCancel(ctx)
	defer end()
	failure, fail := context.WithCancelCause(context.Background()) // of the output, also after a signal
	defer fail(nil)
	root.SetOut(output{os.Stdout, func(err error) { fail(err); end() }})
	wholeHelp(root)
	err := root.ExecuteContext(ctx)
	if failed := context.Cause(failure); errors.Is(failed, syscall.EPIPE) {
		return 128 + int(syscall.SIGPIPE) // as for the others whose reader has gone, without a word
	} else if failed != nil {
		PrintError(os.Stderr, root.CommandPath(), fmt.Errorf("writing the output: %w", failed))
		return 1
	}
	if code, ok := errors.AsType[ExitError](err); ok {
		return int(code)
	}
	if err != nil {
		PrintError(os.Stderr, root.CommandPath(), err)
		return 1
	}
	return 0
}

// PrintError prints an error, which may contain text of other nodes or of the agent.
func PrintError(w io.Writer, program string, err error) {
	lines := strings.Split(err.Error(), "\n")
	for n, line := range lines {
		lines[n] = detector.Printable(line)
	}
	fmt.Fprintf(cli.ForLocale(w), "%s: %s\n", program, cli.Rename(program, strings.Join(lines, "\n")))
}

// output is the standard output. Its first error ends the command, whatever that makes of it: what was written is no whole
// document.
type output struct {
	file *os.File
	fail func(error)
}

// Write implements [io.Writer].
func (o output) Write(data []byte) (int, error) {
	n, err := o.file.Write(data)
	if err != nil {
		o.fail(err)
	}
	return n, err
}

// followReader looks until ctx ends whether the program that reads the output has ended, and fails the output then. Who waits for events
// writes nothing for a long time, and would not notice. A pipe without a reader has POLLERR (poll(2)), that of macOS POLLHUP.
func (o output) followReader(ctx context.Context) {
	for ctx.Err() == nil {
		fds := []unix.PollFd{{Fd: int32(o.Fd())}} //nolint:gosec // a descriptor
		n, err := unix.Poll(fds, 1000)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		if n > 0 && fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0 {
			o.fail(unix.EPIPE)
		}
		if n > 0 {
			return
		}
	}
}

// Fd is the descriptor, for who wants to know whether it is a terminal.
func (o output) Fd() uintptr { return o.file.Fd() }

// wholeHelp prints the help of a command and its subcommands at once: Cobra has a line of its own for an error of the output.
func wholeHelp(root *cobra.Command) {
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		out := cmd.OutOrStdout()
		var text bytes.Buffer
		cmd.SetOut(&text)
		help(cmd, args)
		cmd.SetOut(out)
		_, _ = out.Write(text.Bytes()) // [Run] has the error
	})
}
