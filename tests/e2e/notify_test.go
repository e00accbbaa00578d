package e2e

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// The agent notifies systemd when it is ready, not before, then that it is healthy, and when it stops.
func TestNotifySystemd(t *testing.T) {
	l := lab.NewT(t)
	n := l.Node("")
	for i := range 10 {
		l.Pod(n, fmt.Sprint("pod", i), lab.PodOptions{})
	}
	address := &net.UnixAddr{Name: filepath.Join(t.TempDir(), "notify"), Net: "unixgram"}
	socket, err := net.ListenUnixgram("unixgram", address)
	l.Do(err)
	defer socket.Close()
	t.Setenv("NOTIFY_SOCKET", address.Name)
	t.Setenv("WATCHDOG_USEC", "300000")
	a, err := n.StartAgent()
	l.Do(err)

	received := func() string {
		t.Helper()
		buffer := make([]byte, 4096)
		l.Do(socket.SetReadDeadline(time.Now().Add(lab.Patience(patience))))
		size, err := socket.Read(buffer)
		l.Do(err)
		return string(buffer[:size])
	}
	await := func(line string) (text string) {
		t.Helper()
		for text = received(); !strings.HasPrefix(text, line+"\n"); text = received() {
			if text != "WATCHDOG=1" {
				t.Fatalf("received %q before %s", text, line)
			}
		}
		return text
	}
	if first := received(); !strings.HasPrefix(first, "STATUS=starting") {
		t.Errorf("first %q, want that it starts", first)
	}
	await("READY=1")
	status, err := a.Client.Status(t.Context())
	l.Do(err)
	if status["ready"] != true {
		t.Errorf("it said that it is ready, and is not: %v", status)
	}
	if next := received(); next != "WATCHDOG=1" {
		t.Errorf("after it was ready it sent %q, want that it is healthy", next)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- a.Stop() }()
	await("STOPPING=1")
	l.Do(<-stopped)
}
