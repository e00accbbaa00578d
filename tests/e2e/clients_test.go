package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// Clients that behave badly do not stop the agent or each other.
func TestRudeClients(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	l.Pod(n, "pod", lab.PodOptions{Addrs: []netip.Addr{n.IPv4(5)}})
	a := l.Agent(n)
	for name, text := range map[string]string{
		"no HTTP":        "\x00\x01\x02nonsense\r\n\r\n",
		"large header":   "GET /v1/status HTTP/1.1\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n",
		"no address":     "GET /v1/explain?ip=%00 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"another method": "DELETE /v1/conflicts HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"unknown path":   "GET /v2/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
	} {
		conn, err := net.Dial("unix", a.Socket)
		l.Do(err)
		l.Do(conn.SetDeadline(time.Now().Add(patience)))
		_, _ = io.WriteString(conn, text) // may be refused half-way
		answer, _ := io.ReadAll(conn)
		_ = conn.Close()
		if !strings.HasPrefix(string(answer), "HTTP/1.1 4") {
			t.Errorf("%s: answer %q, want a status of 400 to 499", name, answer)
		}
	}

	// More streams than there is room for, none of them read.
	var refused int
	for range 40 {
		body, err := a.Client.Get(t.Context(), "/v1/bindings", "watch=1")
		if err != nil {
			refused++
			continue
		}
		t.Cleanup(func() { _ = body.Close() })
	}
	if refused != 8 {
		t.Errorf("%d of 40 streams were refused, want 8", refused)
	}
	wantOneLine(t, dupip(t, nil, "bindings", "--watch", "--api-socket", a.Socket), "too many")
	got := dupip(t, nil, "bindings", "--api-socket", a.Socket)
	if got.code != 0 || !strings.Contains(got.stdout, n.IPv4(5).String()) {
		t.Errorf("bindings beside the streams: %+v", got)
	}
	l.Do(a.Stop())
}

// Scripts rely on the exit code: no open conflict is success, and the command ends when its reader
// does.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	a := l.Agent(n)
	if got := dupip(t, nil, "conflicts", "--exit-code", "--api-socket", a.Socket); got.code != 0 {
		t.Errorf("no conflict: %+v, want exit 0", got)
	}
	w := l.Watch(a)
	ip := n.IPv4(5)
	var pods []*lab.Pod
	for _, name := range []string{"older", "newcomer"} {
		pods = append(pods, l.Pod(n, name, lab.PodOptions{Addrs: []netip.Addr{ip}}))
	}
	_, err := w.WaitConfirmed(ip, patience)
	l.Do(err)

	binary, err := lab.Binary()
	l.Do(err)
	reader, writer, err := os.Pipe()
	l.Do(err)
	watch := exec.Command(binary, "bindings", "--watch", "--api-socket", a.Socket)
	watch.Stdout = writer
	l.Do(watch.Start(), writer.Close())
	_, err = reader.Read(make([]byte, 1))
	l.Do(err, reader.Close(), pods[1].Delete())
	ended := make(chan error, 1)
	go func() { ended <- watch.Wait() }()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("a watch runs on without a reader")
		_ = watch.Process.Kill()
		<-ended
	}

	_, err = w.WaitType("resolved", ip, patience)
	l.Do(err)
	if got := dupip(t, nil, "conflicts", "--exit-code", "--api-socket", a.Socket); got.code != 0 {
		t.Errorf("a resolved conflict: %+v, want exit 0", got)
	}
	if got := dupip(t, nil, "conflicts", "--exit-code", "--all", "--api-socket", a.Socket); got.code != 0 || !strings.Contains(got.stdout, "resolved") {
		t.Errorf("a resolved conflict, --all: %+v, want exit 0", got)
	}
}

// Before an agent has attached, commands report that, and never "no conflict".
func TestStartingIsNoAllClear(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	for pod := range 40 { // so that the start takes a moment
		l.Pod(n, fmt.Sprintf("pod%d", pod), lab.PodOptions{Addrs: []netip.Addr{n.IPv4(byte(10 + pod))}})
	}
	// A question may come too early and the next one too late: then there is another start.
	starting := false
	for round := 0; round < 10 && !starting; round++ {
		a, err := n.StartAgent()
		l.Do(err)
		l.Eventually("the agent is ready", func() error {
			got := dupip(t, nil, "conflicts", "--api-socket", a.Socket)
			starting = starting || strings.Contains(got.stderr, "still starting")
			if got.code != 0 {
				return errors.New(got.stderr)
			}
			status, err := statusOf(l, a)
			if err == nil && status.ByState["attached"] < 40 {
				t.Errorf("it answered with %v interfaces attached", status.ByState)
			}
			return err
		})
		l.Do(a.Stop())
	}
	if !starting {
		t.Error("it never reported that it was starting")
	}
}
