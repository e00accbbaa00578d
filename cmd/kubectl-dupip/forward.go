package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/document"
)

// forwardTime is how long kubectl may take to reach a pod.
const forwardTime = 30 * time.Second

// forward is a port of this machine that kubectl forwards to a reporter.
type forward struct {
	port   int
	leader string // the pod of the reporter that reads the books
	end    context.CancelFunc
	done   chan struct{} // is closed when kubectl has ended
}

func (f *forward) address() string { return fmt.Sprintf("127.0.0.1:%d", f.port) }

// stop ends kubectl, and waits for that.
func (f *forward) stop() {
	f.end()
	<-f.done
}

func (f *forward) client() *api.Client { return api.NewReporterClient(f.address()) }

// answers asks the reporter which one reads the books of the API server.
func (f *forward) answers(ctx context.Context) error {
	doc, err := f.client().Nodes(ctx, document.Query{State: "left"}) // a small document, for which no agent is asked
	f.leader = doc.Leader
	return err
}

// connect forwards a port, 0 for any, to the reporter that reads the books of the API server, or to the first one that answers. It ends with
// ctx.
func (p *plugin) connect(ctx context.Context, port int) (*forward, error) {
	pods, err := p.pods(ctx)
	if err != nil {
		return nil, err
	}
	for _, pod := range pods {
		var f *forward
		f, err = p.forward(ctx, pod, port)
		if err == nil && f.leader != pod && slices.Contains(pods, f.leader) {
			f.stop() // both may want one port
			if leader, err := p.forward(ctx, f.leader, port); err == nil {
				return leader, nil
			}
			f, err = p.forward(ctx, pod, port)
		}
		if err == nil || errors.Is(err, errForbidden) {
			return f, err
		}
	}
	return nil, err
}

func (p *plugin) forward(ctx context.Context, pod string, port int) (*forward, error) {
	ports := fmt.Sprintf(":%d", api.ReporterPort)
	if port != 0 {
		ports = strconv.Itoa(port) + ports
	}
	running, end := context.WithCancel(ctx)
	cmd, stderr := p.command(running, "port-forward", "pod/"+pod, ports, "--address=127.0.0.1")
	// It has no terminal. A program that kubectl is a script for is in its group, and ends with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	out, stdout := io.Pipe()
	cmd.Stdout = stdout
	if err := cmd.Start(); err != nil {
		end()
		return nil, p.failure(ctx, err, stderr)
	}
	f := &forward{end: end, done: make(chan struct{})}
	var ended error
	forwarded := make(chan int, 1)
	go readPort(out, forwarded)
	p.kubectls.Go(func() {
		defer close(f.done)
		defer end()
		ended = cmd.Wait()
		stdout.Close()
	})
	select {
	case <-f.done:
		return nil, p.failure(ctx, ended, stderr)
	case <-time.After(forwardTime):
		f.stop()
		return nil, fmt.Errorf("kubectl has not forwarded a port to pod %s within %s", pod, forwardTime)
	case f.port = <-forwarded:
	}
	if err := f.answers(ctx); err != nil {
		f.stop()
		return nil, fmt.Errorf("the reporter in pod %s does not answer: %w", pod, err)
	}
	return f, nil
}

// forwardingFrom is the line of kubectl that says which port it forwards.
var forwardingFrom = regexp.MustCompile(`^Forwarding from 127\.0\.0\.1:(\d+) -> \d+`)

// readPort sends the port that kubectl forwards, and drops what else it says.
func readPort(out io.Reader, port chan<- int) {
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if m := forwardingFrom.FindStringSubmatch(lines.Text()); m != nil {
			number, _ := strconv.Atoi(m[1])
			port <- number
			break
		}
	}
	_, _ = io.Copy(io.Discard, out)
}
