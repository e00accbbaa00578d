package members

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestCountKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	key := strings.Repeat("QUFB", 8) // 24 bytes
	if err := os.WriteFile(path, []byte("# two\n"+key+"\n\n"+strings.Repeat("QkJC", 8)+"\n"+key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := CountKeys(path); n != 2 || err != nil {
		t.Errorf("%d keys, %v; want 2", n, err)
	}
	if _, err := CountKeys(path + "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

// The port is tried with real sockets, by TCP and by UDP.
func TestCheckPort(t *testing.T) {
	var n network
	if err := n.listen("127.0.0.2", 0); err != nil {
		t.Fatal(err)
	}
	defer n.tcp.Close()
	defer n.udp.Close()
	tcp, err := net.Listen("tcp4", "127.0.0.4:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	udp, err := net.ListenPacket("udp4", "127.0.0.4:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	tcpPort, udpPort := tcp.Addr().(*net.TCPAddr).Port, udp.LocalAddr().(*net.UDPAddr).Port
	for _, test := range []struct {
		name, bind string
		port       int
		words      []string
	}{
		{"TCP in use", "127.0.0.4", tcpPort, []string{"tcp4 127.0.0.4:", "in use", "--gossip-port"}},
		{"UDP in use", "127.0.0.4", udpPort, []string{"udp4 127.0.0.4:", "in use", "--gossip-port"}},
		{"UDP in use at one of all addresses", "", udpPort, []string{"udp ", "in use", "--gossip-port"}},
		{"in use elsewhere", "127.0.0.3", n.port(), nil},
		{"not ours", "192.0.2.1", udpPort, []string{"192.0.2.1", "--bind"}},
		{"no address", "eth0", udpPort, []string{"eth0", "--bind"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for range 2 { // it leaves nothing open
				err := CheckPort(test.bind, test.port)
				if (err == nil) != (test.words == nil) {
					t.Fatalf("error %v", err)
				}
				for _, word := range test.words {
					if !strings.Contains(err.Error(), word) {
						t.Errorf("error %q does not say %q", err, word)
					}
				}
			}
		})
	}
}

func TestResolve(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, test := range []struct {
		ctx        context.Context
		join       []string
		addresses  []string
		unresolved []string
		refused    string
	}{
		{t.Context(), []string{"127.0.0.2", "127.0.0.3:8", "[::1]:9", "::2"}, []string{"127.0.0.2:7", "127.0.0.3:8", "[::1]:9", "[::2]:7"}, nil, ""},
		{ended, []string{"127.0.0.2", "dupip.invalid", "dupip.invalid:8"}, []string{"127.0.0.2:7"}, []string{"dupip.invalid", "dupip.invalid:8"}, ""},
		{t.Context(), []string{"127.0.0.2", "no name"}, nil, nil, "no name"},
		{t.Context(), []string{"127.0.0.2:0"}, nil, nil, "no port 0"},
	} {
		addresses, unresolved, err := Resolve(test.ctx, test.join, 7)
		if (err == nil) != (test.refused == "") || err != nil && !strings.Contains(err.Error(), test.refused) {
			t.Errorf("%q: error %v, want %q", test.join, err, test.refused)
		}
		var texts []string
		for _, address := range addresses {
			texts = append(texts, fmt.Sprint(address))
		}
		if !slices.Equal(texts, test.addresses) || !slices.Equal(unresolved, test.unresolved) {
			t.Errorf("%q: %q and %q, want %q and %q", test.join, texts, unresolved, test.addresses, test.unresolved)
		}
	}
}
