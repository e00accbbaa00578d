package doctor

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

// The agent's view of the cluster, and the resulting check.
func TestGossipCheck(t *testing.T) {
	type change = func(*facts)
	for _, test := range []struct {
		name   string
		change change
		status Status
		words  []string
	}{
		{"well", func(*facts) {}, OK, []string{"3 alive"}},
		{"alone", func(f *facts) { f.status.Cluster = document.ClusterStatus{Alone: true} }, Skip, []string{"--join"}},
		{"alone against its flags", func(f *facts) {
			f.status.Cluster, f.opts.Join = document.ClusterStatus{Alone: true}, []string{"n2"}
		}, Warn, []string{"alone", "--join"}},
		{"no agent", func(f *facts) { f.status, f.opts.Bind = nil, "10.0.0.1" }, Skip, []string{"running agent"}},
		{"no agent, no flags", func(f *facts) { f.status = nil }, Skip, []string{"--join"}},
		{"problems", func(f *facts) {
			f.status.Cluster.Problems = []string{"n2 does not answer by UDP: allow it", "the key file is not readable"}
		}, Warn, []string{"n2 does not answer by UDP", "key file", "3 alive"}},
		{"unacked", func(f *facts) {
			f.status.Cluster.Leases, f.status.Cluster.Unacked = 30, 1
			f.nodes = document.Nodes{Nodes: []document.Node{{Member: cluster.Member{Name: "n2", Unacked: 1}}, {Member: cluster.Member{Name: "n3"}}}}
		}, Warn, []string{"1 of 30 leases", "UDP port 7951", "from n2"}},
		{"cut off", func(f *facts) { f.status.Cluster.Members = map[cluster.State]int{"alive": 1, "dead": 2} }, Warn, []string{"no other node answers", "2 dead"}},
		{"the first of a cluster", func(f *facts) { f.status.Cluster.Members = map[cluster.State]int{"alive": 1} }, OK, []string{"1 alive"}},
		{"not encrypted", func(f *facts) { f.status.Cluster.Encrypted = false }, OK, []string{"not encrypted"}},
		{"not encrypted against its flags", func(f *facts) {
			f.status.Cluster.Encrypted, f.opts.KeyFile = false, "/keys"
		}, Warn, []string{"not encrypted", "--gossip-key-file"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			known := &facts{status: &document.Status{Cluster: document.ClusterStatus{Status: cluster.Status{
				Address: "10.0.0.1:7951", Encrypted: true, Members: map[cluster.State]int{"alive": 3, "left": 0}, Leases: 30,
			}}}}
			test.change(known)
			want(t, "gossip", known, test.status, test.words...)
		})
	}
}

func TestGossipKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte("key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		mode   os.FileMode
		uid    int
		opts   Options
		err    error
		status Status
		words  []string
	}{
		{"alone", 0o600, 0, Options{KeyFile: path}, nil, Skip, []string{"--join"}},
		{"none", 0o600, 0, Options{Bind: "10.0.0.1", NeedsKey: true}, nil, Fail, []string{"does not start", "make a key", "--gossip-key-file"}},
		{"none on loopback", 0o600, 0, Options{Bind: "127.0.0.1"}, nil, OK, []string{"127.0.0.1"}},
		{"good", 0o600, 0, Options{Bind: "10.0.0.1", KeyFile: path}, nil, OK, []string{path, "2 keys"}},
		{"for all to read", 0o604, 0, Options{Bind: "10.0.0.1", KeyFile: path}, nil, Warn, []string{"chmod o-r"}},
		{"broken", 0o600, 0, Options{Bind: "10.0.0.1", KeyFile: path}, errors.New("line 3 is not base64"), Fail, []string{"line 3", "--gossip-key-file", "Secret"}},
		{"of root", 0o600, 0, Options{Bind: "10.0.0.1", KeyFile: path}, fs.ErrPermission, Fail, []string{"permission"}},
		{"of root, for others", 0o600, 1000, Options{Bind: "10.0.0.1", KeyFile: path}, fs.ErrPermission, Skip, []string{"needs root"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := os.Chmod(path, test.mode); err != nil {
				t.Fatal(err)
			}
			test.opts.CountKeys = func(string) (int, error) { return 2, test.err }
			want(t, "gossip keys", &facts{opts: test.opts, uid: test.uid}, test.status, test.words...)
		})
	}
	served := &facts{opts: Options{NeedsKey: true}, status: &document.Status{Cluster: document.ClusterStatus{Status: cluster.Status{Encrypted: true}}}}
	want(t, "gossip keys", served, OK, "the agent has keys")
	served.status.Cluster.Encrypted = false // it runs, so it listens on loopback
	want(t, "gossip keys", served, OK, "from this node only")
}

func TestGossipPort(t *testing.T) {
	for _, test := range []struct {
		name   string
		opts   Options
		err    error
		status Status
		words  []string
	}{
		{"alone", Options{}, nil, Skip, []string{"--join"}},
		{"free", Options{Bind: "127.0.0.3", GossipPort: 7951}, nil, OK, []string{"127.0.0.3:7951 is free"}},
		{"free at all addresses", Options{Join: []string{"n2"}, GossipPort: 8000}, nil, OK, []string{":8000 is free"}},
		{"in use", Options{Bind: "127.0.0.2", GossipPort: 8000}, errors.New("bind: address already in use"), Fail, []string{"in use", "sport = :8000", "--gossip-port"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.opts.CheckPort = func(bind string, port int) error {
				if bind != test.opts.Bind || port != test.opts.GossipPort {
					t.Errorf("CheckPort got %s, %d", bind, port)
				}
				return test.err
			}
			want(t, "gossip port", &facts{opts: test.opts}, test.status, test.words...)
		})
	}
	served := &facts{status: &document.Status{Cluster: document.ClusterStatus{Status: cluster.Status{Address: "10.0.0.1:7951"}}}}
	want(t, "gossip port", served, OK, "10.0.0.1:7951")
}

// Connections are real ones, to loopback addresses.
func TestGossipJoin(t *testing.T) {
	if os.Geteuid() == 0 { // then this is a new netns
		if err := loopbackUp(); err != nil {
			t.Fatal(err)
		}
	}
	listening, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listening.Close()
	gone, err := net.Listen("tcp", "127.0.0.3:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	open, closed := listening.Addr().String(), gone.Addr().String()
	in := func(n int) *document.Status {
		return &document.Status{Cluster: document.ClusterStatus{Status: cluster.Status{Members: map[cluster.State]int{"alive": n}}}}
	}
	for _, test := range []struct {
		name   string
		join   []string // addresses, or names without any
		agent  *document.Status
		status Status
		words  []string
	}{
		{"alone", nil, nil, Skip, []string{"--join"}},
		{"others join", nil, in(1), OK, []string{"others join"}},
		{"joined", []string{closed}, in(3), OK, []string{"joined"}},
		{"one answers", []string{open}, nil, OK, []string{open}},
		{"one of two", []string{open, closed}, in(1), Warn, []string{open, "not " + closed, "refused"}},
		{"none answers", []string{closed, "n2"}, nil, Warn, []string{closed + " (connection refused)", "n2 (not resolved)"}},
		{"one without an address", []string{open, "n2"}, nil, Warn, []string{open, "not n2 (not resolved)"}},
		{"itself", []string{"127.0.0.1:1"}, nil, OK, []string{"this node only"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			opts := Options{Join: test.join, GossipPort: 7951}
			opts.Resolve = func(_ context.Context, join []string, port int) (addresses []netip.AddrPort, unresolved []string) {
				if port != opts.GossipPort {
					t.Errorf("Resolve got port %d", port)
				}
				for _, text := range join {
					if address, err := netip.ParseAddrPort(text); err == nil {
						addresses = append(addresses, address)
					} else {
						unresolved = append(unresolved, text)
					}
				}
				return addresses, unresolved
			}
			want(t, "gossip join", &facts{opts: opts, status: test.agent}, test.status, test.words...)
		})
	}
}

// A long list of addresses without answers does not delay the check.
func TestManyToJoin(t *testing.T) {
	var many []netip.AddrPort
	for n := range 10 * maxTargets {
		many = append(many, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 1, 1, byte(n)}), 9))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	<-ctx.Done()
	reached, failed := dialAll(ctx, many)
	if len(reached) != 0 || len(failed) != maxTargets {
		t.Errorf("reached %v, failed %v", reached, failed)
	}
	for _, text := range failed {
		if !strings.HasSuffix(text, "(no answer)") {
			t.Error(text)
		}
	}
}
