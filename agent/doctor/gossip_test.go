package doctor

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/agent/api"
)

// What an agent says of the cluster, and what is made of it.
func TestGossipIsTranslated(t *testing.T) {
	type change = func(*facts)
	for _, test := range []struct {
		name   string
		change change
		status Status
		words  []string
	}{
		{"well", func(*facts) {}, OK, []string{"3 alive"}},
		{"alone", func(f *facts) { f.status.Cluster = api.ClusterStatus{Alone: true} }, Skip, []string{"--join"}},
		{"alone against its flags", func(f *facts) {
			f.status.Cluster, f.opts.Join = api.ClusterStatus{Alone: true}, []string{"n2"}
		}, Warn, []string{"alone", "--join"}},
		{"no agent", func(f *facts) { f.status, f.opts.Bind = nil, "10.0.0.1" }, Skip, []string{"running agent"}},
		{"no agent, no flags", func(f *facts) { f.status = nil }, Skip, []string{"--join"}},
		{"problems", func(f *facts) {
			f.status.Cluster.Problems = []string{"n2 does not answer by UDP: allow it", "the key file is not readable"}
		}, Warn, []string{"n2 does not answer by UDP", "key file", "3 alive"}},
		{"unacked", func(f *facts) {
			f.status.Cluster.Leases, f.status.Cluster.Unacked = 30, 12
			f.nodes = &api.Nodes{Nodes: []api.Node{{Name: "n2", Unacked: 12}, {Name: "n3"}}}
		}, Warn, []string{"12 of 30 leases", "UDP port 7951", "from n2"}},
		{"cut off", func(f *facts) { f.status.Cluster.Members = map[string]int{"alive": 1, "dead": 2} }, Warn, []string{"no other node answers", "2 dead"}},
		{"the first of a cluster", func(f *facts) { f.status.Cluster.Members = map[string]int{"alive": 1} }, OK, []string{"1 alive"}},
		{"not encrypted", func(f *facts) { f.status.Cluster.Encrypted = false }, OK, []string{"not encrypted"}},
		{"not encrypted against its flags", func(f *facts) {
			f.status.Cluster.Encrypted, f.opts.KeyFile = false, "/keys"
		}, Warn, []string{"not encrypted", "--gossip-key-file"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			known := &facts{status: &api.Status{Cluster: api.ClusterStatus{
				Address: "10.0.0.1:7951", Encrypted: true, Members: map[string]int{"alive": 3, "left": 0}, Leases: 30,
			}}}
			test.change(known)
			wantFinding(t, checkGossip(t.Context(), known), test.status, test.words...)
		})
	}
}

func TestGossipKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte("key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	two := func(string) (int, error) { return 2, nil }
	broken := func(string) (int, error) { return 0, errors.New("line 3 is not base64") }
	for _, test := range []struct {
		name   string
		mode   os.FileMode
		opts   Options
		status Status
		words  []string
	}{
		{"alone", 0o600, Options{}, Skip, []string{"--join"}},
		{"none", 0o600, Options{Bind: "10.0.0.1"}, Warn, []string{"--gossip-key-file"}},
		{"good", 0o600, Options{Bind: "10.0.0.1", KeyFile: path, CountKeys: two}, OK, []string{path, "2 keys"}},
		{"for all to read", 0o604, Options{Bind: "10.0.0.1", KeyFile: path, CountKeys: two}, Warn, []string{"chmod o-r"}},
		{"broken", 0o600, Options{Bind: "10.0.0.1", KeyFile: path, CountKeys: broken}, Fail, []string{"line 3", "mend it"}},
		{"not there", 0o600, Options{Bind: "10.0.0.1", KeyFile: path + "x", CountKeys: two}, Fail, []string{"no such file", "Secret"}},
		{"a folder", 0o600, Options{Bind: "10.0.0.1", KeyFile: filepath.Dir(path), CountKeys: two}, Fail, []string{"regular file"}},
		{"unexamined", 0o600, Options{Bind: "10.0.0.1", KeyFile: path}, OK, []string{"is there"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := os.Chmod(path, test.mode); err != nil {
				t.Fatal(err)
			}
			wantFinding(t, checkKeys(t.Context(), &facts{opts: test.opts}), test.status, test.words...)
		})
	}
}

// loopbackUp sets up what is down in a new netns.
func loopbackUp(t *testing.T) {
	t.Helper()
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The port is tried with real sockets, on loopback addresses. In the tests' own netns what is free
// for UDP is free for TCP.
func TestGossipPort(t *testing.T) {
	loopbackUp(t)
	tcp, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	udp, err := net.ListenPacket("udp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	udpPort := udp.LocalAddr().(*net.UDPAddr).Port
	for _, test := range []struct {
		name   string
		opts   Options
		status Status
		words  []string
	}{
		{"alone", Options{}, Skip, []string{"--join"}},
		{"TCP in use", Options{Bind: "127.0.0.2", GossipPort: tcp.Addr().(*net.TCPAddr).Port}, Fail, []string{"TCP 127.0.0.2", "--gossip-port"}},
		{"UDP in use", Options{Bind: "127.0.0.2", GossipPort: udpPort}, Fail, []string{"UDP 127.0.0.2", "--gossip-port"}},
		{"UDP in use at one of all addresses", Options{Join: []string{"n2"}, GossipPort: udpPort}, Fail, []string{"UDP"}},
		{"in use elsewhere", Options{Bind: "127.0.0.3", GossipPort: udpPort}, OK, []string{"free"}},
		{"not ours", Options{Bind: "192.0.2.1", GossipPort: udpPort}, Fail, []string{"192.0.2.1", "--bind"}},
		{"no address", Options{Bind: "eth0", GossipPort: udpPort}, Fail, []string{"eth0", "--bind"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			wantFinding(t, checkGossipPort(t.Context(), &facts{opts: test.opts}), test.status, test.words...)
		})
	}
	served := &facts{status: &api.Status{Cluster: api.ClusterStatus{Address: "10.0.0.1:7951"}}}
	wantFinding(t, checkGossipPort(t.Context(), served), OK, "10.0.0.1:7951")
}

func TestParseSocket(t *testing.T) {
	for text, want := range map[string]string{
		"0100007F:1F0F":                         "127.0.0.1:7951",
		"00000000:1F0F":                         "0.0.0.0:7951",
		"B80D0120000000000000000001000000:1F0F": "[2001:db8::1]:7951",
		"0000000000000000FFFF00000100007F:0035": "127.0.0.1:53",
		"":                                      "", "0100007F": "", "0100007F:": "", "zz:1": "", "010000:1": "", "0100007F:1F0F0": "",
	} {
		got, good := parseSocket(text)
		if good != (want != "") || good && got.String() != want {
			t.Errorf("%q: %v, %t; want %q", text, got, good, want)
		}
	}
}

func TestGossipJoin(t *testing.T) {
	loopbackUp(t)
	there, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	port := there.Addr().(*net.TCPAddr).Port
	gone, err := net.Listen("tcp", "127.0.0.3:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := gone.Addr().String()
	gone.Close()
	in := func(n int) *api.Status {
		return &api.Status{Cluster: api.ClusterStatus{Members: map[string]int{"alive": n}}}
	}
	for _, test := range []struct {
		name   string
		join   []string
		agent  *api.Status
		status Status
		words  []string
	}{
		{"alone", nil, nil, Skip, []string{"--join"}},
		{"others join", nil, in(1), OK, []string{"others join"}},
		{"joined", []string{nobody}, in(3), OK, []string{"joined"}},
		{"there", []string{"127.0.0.2"}, nil, OK, []string{"127.0.0.2:" + strconv.Itoa(port)}},
		{"one of two", []string{"127.0.0.2", nobody}, in(1), Warn, []string{"not " + nobody, "refused"}},
		{"nobody", []string{nobody, "127.0.0.2:0", "no name"}, nil, Warn, []string{"refused", "no port 0", "no name (not resolved)"}},
		{"itself", []string{"127.0.0.1:" + strconv.Itoa(port)}, nil, OK, []string{"this node only"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			known := &facts{opts: Options{Join: test.join, GossipPort: port}, status: test.agent}
			wantFinding(t, checkJoin(t.Context(), known), test.status, test.words...)
		})
	}
}

// However long the list is and however little is heard, it ends.
func TestManyToJoin(t *testing.T) {
	var join []string
	for n := range 10 * maxTargets {
		join = append(join, netip.AddrFrom4([4]byte{127, 1, 1, byte(n)}).String())
	}
	addresses, unresolved := resolveAll(t.Context(), join, 9)
	if len(addresses) != maxTargets || len(unresolved) != 0 {
		t.Errorf("%d addresses, %v", len(addresses), unresolved)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	<-ctx.Done()
	for _, err := range dialAll(ctx, addresses) {
		if err == nil || dialTrouble(err) != "no answer" {
			t.Errorf("%v is %q", err, dialTrouble(err))
		}
	}
}
