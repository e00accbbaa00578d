package main

import (
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// What is wrong with a port is one line that says what to do.
func TestPortOfThePage(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for port, want := range map[int]string{taken.Addr().(*net.TCPAddr).Port: "address already in use; choose another --port, or 0 for a free one", 65536: "must be 0 to 65535"} {
		out, err := dupip("ui", "--port", strconv.Itoa(port))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || out != "" {
			t.Errorf("port %d: %q, %v", port, out, err)
		}
	}
}

// Without an agent there is no page, and that is said before anybody opens it.
func TestPageWithoutAgent(t *testing.T) {
	out, err := dupip("ui", "--api-socket", filepath.Join(t.TempDir(), "none.sock"))
	if err == nil || !strings.Contains(err.Error(), "no agent is running at ") || strings.Contains(err.Error(), "\n") || out != "" {
		t.Errorf("%q, %v", out, err)
	}
}
