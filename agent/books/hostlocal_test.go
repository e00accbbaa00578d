package books

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestParseNetwork(t *testing.T) {
	for name, test := range map[string]struct{ config, want string }{
		"a list": {
			`{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"ptp","ipam":{"type":"host-local","subnet":"10.1.2.0/24"}},{"type":"portmap"}]}`,
			"pods /var/lib/cni/networks/pods [10.1.2.1-10.1.2.254 10.1.2.1]",
		},
		"one plugin, two families, a folder of its own": {
			`{"name":"kindnet","type":"ptp","ipam":{"type":"host-local","dataDir":"/run/cni-ipam-state","ranges":[[{"subnet":"10.244.0.0/24"}],[{"subnet":"fd00:10:244::/64"}]]}}`,
			"kindnet /run/cni-ipam-state/kindnet [10.244.0.1-10.244.0.254 10.244.0.1] [fd00:10:244::1-fd00:10:244:0:ffff:ffff:ffff:ffff fd00:10:244::1]",
		},
		"a part of a subnet": {
			`{"name":"pods","type":"bridge","ipam":{"type":"host-local","subnet":"10.1.0.0/16","rangeStart":"10.1.3.20","rangeEnd":"10.1.3.50","gateway":"10.1.255.254"}}`,
			"pods /var/lib/cni/networks/pods [10.1.3.20-10.1.3.50 10.1.255.254]",
		},
		"one address, which is the gateway's, too": {
			`{"name":"pods","type":"bridge","ipam":{"type":"host-local","subnet":"10.1.0.0/16","rangeStart":"10.1.3.20","rangeEnd":"10.1.3.20","gateway":"10.1.3.20"}}`,
			"pods /var/lib/cni/networks/pods [10.1.3.20-10.1.3.20 10.1.3.20]",
		},
		"a subnet that the runtime fills in": {`{"name":"k8s","type":"bridge","ipam":{"type":"host-local","subnet":"usePodCidr"}}`, "k8s /var/lib/cni/networks/k8s"},
		"flannel":                            {`{"name":"cbr0","plugins":[{"type":"flannel","delegate":{"isDefaultGateway":true}}]}`, "cbr0 /var/lib/cni/networks/cbr0"},
		"too small a subnet":                 {`{"name":"pods","type":"bridge","ipam":{"type":"host-local","subnet":"10.1.0.0/31"}}`, "pods /var/lib/cni/networks/pods"},
		"another IPAM":                       {`{"name":"pods","type":"bridge","ipam":{"type":"whereabouts","range":"10.1.0.0/16"}}`, ""},
		"a name that is a path":              {`{"name":"../../etc","type":"bridge","ipam":{"type":"host-local","subnet":"10.1.0.0/16"}}`, ""},
		"a name that leads out":              {`{"name":"..","type":"bridge","ipam":{"type":"host-local","subnet":"10.1.0.0/16"}}`, ""},
		"no JSON":                            {`{"name":`, ""},
	} {
		got := ""
		if n := parseNetwork([]byte(test.config)); n != nil {
			got = n.Network + " " + n.Store
			for _, r := range n.Ranges {
				got += fmt.Sprintf(" [%v %v]", r, r.Gateway)
			}
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestCovers(t *testing.T) {
	n := parseNetwork([]byte(`{"name":"pods","type":"ptp","ipam":{"type":"host-local","subnet":"10.1.2.0/24"}}`))
	for ip, want := range map[string]bool{
		"10.1.2.1": false, "10.1.2.2": true, "10.1.2.254": true, "10.1.2.255": false, "10.1.2.0": false, "10.1.3.2": false, "fd00::2": false,
	} {
		if n.Covers(netip.MustParseAddr(ip)) != want {
			t.Errorf("%s: covered is %t", ip, !want)
		}
	}
}

// store is a configuration of one network, and its store.
type store struct {
	t    *testing.T
	dir  string
	book *IPAM
}

func newStore(t *testing.T) *store {
	dir := t.TempDir()
	s := &store{t, filepath.Join(dir, "data", "pods"), NewIPAM(func() string { return filepath.Join(dir, "conf") })}
	t.Cleanup(s.book.Close)
	s.must(os.MkdirAll(s.dir, 0o755))
	s.must(os.MkdirAll(filepath.Join(dir, "conf"), 0o755))
	s.configure("data")
	return s
}

// configure sets the folder of stores.
func (s *store) configure(data string) {
	s.t.Helper()
	s.must(os.WriteFile(s.config(), fmt.Appendf(nil,
		`{"name":"pods","plugins":[{"type":"ptp","ipam":{"type":"host-local","subnet":"10.1.2.0/24","dataDir":%q}}]}`,
		filepath.Join(filepath.Dir(s.book.folder()), data)), 0o600))
}

func (s *store) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *store) write(name, content string) {
	s.t.Helper()
	s.must(os.WriteFile(filepath.Join(s.dir, name), []byte(content), 0o600))
}

// read returns what the only book has.
func (s *store) read() *Reserved {
	s.t.Helper()
	all, err := s.book.Read()
	s.must(err)
	if len(all) != 1 {
		s.t.Fatalf("%d books", len(all))
	}
	return all[0]
}

// text is what is reserved.
func text(r *Reserved) string {
	if r.Err != nil {
		return "error"
	}
	var list []string
	for _, last := range []int{2, 3, 4} {
		if found, ok := r.Reservations[netip.AddrFrom4([4]byte{10, 1, 2, byte(last)})]; ok {
			list = append(list, fmt.Sprintf("%d:%s", last, found.Sandbox))
		}
	}
	return strings.Join(list, " ")
}

func TestHostLocal(t *testing.T) {
	s := newStore(t)
	expect := func(when, want string) {
		t.Helper()
		if got := text(s.read()); got != want {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	expect("an empty store", "")
	s.write("10.1.2.2", "aaaa\r\neth0")
	s.write("10.1.2.3", "bbbb") // of an old version
	s.write("last_reserved_ip.0", "10.1.2.3")
	s.write("lock", "")
	expect("two", "2:aaaa 3:bbbb")
	s.must(os.Remove(filepath.Join(s.dir, "10.1.2.2")))
	s.write("10.1.2.2", "cccc\r\neth0")
	expect("given out again", "2:cccc 3:bbbb")
	s.write("10.1.2.4", "")
	expect("an ADD has made the file", "2:cccc 3:bbbb 4:")
	old := time.Now().Add(-time.Hour)
	s.must(os.Chtimes(s.dir, old, old))
	expect("it has not changed", "2:cccc 3:bbbb 4:")
	s.write("10.1.2.4", "dddd\r\neth0")
	expect("the ADD has written it, which does not change the folder", "2:cccc 3:bbbb 4:dddd")
	s.must(os.RemoveAll(s.dir))
	expect("it was wiped", "")
}

// What nobody can have made by host-local costs what the store would say, and nothing else.
func TestHostileStore(t *testing.T) {
	for name, make := range map[string]func(s *store, at string) error{
		"a link":       func(_ *store, at string) error { return os.Symlink("/etc/passwd", at) },
		"a pipe":       func(_ *store, at string) error { return unix.Mkfifo(at, 0o600) },
		"a folder":     func(_ *store, at string) error { return os.Mkdir(at, 0o700) },
		"a large file": func(_ *store, at string) error { return os.WriteFile(at, []byte(strings.Repeat("a", 1<<20)), 0o600) },
		"too many": func(s *store, _ string) error {
			for n := range maxReservations {
				f, err := os.Create(filepath.Join(s.dir, fmt.Sprint("file", n)))
				if err != nil {
					return err
				}
				f.Close()
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			s.write("10.1.2.2", "aaaa\r\neth0")
			s.must(make(s, filepath.Join(s.dir, "10.1.2.3")))
			if r := s.read(); r.Err == nil || r.Reservations != nil {
				t.Errorf("%q is reserved", text(r))
			}
		})
	}
}

// FuzzParse: whatever a file has, what is made of it is valid and bounded.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"name":"pods","plugins":[{"type":"ptp","ipam":{"type":"host-local","subnet":"10.1.2.0/24","gateway":"10.1.2.1"}}]}`))
	f.Add([]byte(`{"name":"pods","type":"flannel"}`))
	f.Add([]byte(`{"name":"/","type":"ptp","ipam":{"type":"host-local","subnet":"fd00::/64","rangeStart":"fd00::9"}}`))
	f.Add([]byte(`{"kind":"cniCacheV1","ifName":"eth0","cniArgs":[["K8S_POD_NAME","web"]],"result":{"interfaces":[{"name":"veth1"}],"ips":[{"address":"10.1.2.3/24"}]}}`))
	f.Add([]byte(`{"cniResult":{"Interfaces":{"eth0":{"IPConfigs":[{"IP":"10.1.2.3"}],"Sandbox":"/run/netns/a"}}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if n := parseNetwork(data); n != nil && n.Book == BookHostLocal && (filepath.Base(n.Store) != n.Network || len(n.Ranges) > maxAddresses) {
			t.Errorf("%+v", n)
		}
		e, err := parseEntry(data)
		if (e == nil) == (err == nil) {
			t.Errorf("%+v, %v", e, err)
		}
		for _, r := range []*Result{FromRuntime(data), entryResult(e)} {
			if r != nil && (len(r.Addresses) > maxAddresses || len(r.HostEnds) > maxHostEnds) {
				t.Errorf("%+v", r)
			}
		}
	})
}

func entryResult(e *Entry) *Result {
	if e == nil {
		return nil
	}
	return e.Result
}

// Flannel's daemon writes the range of the node's pods into a file.
func TestFlannel(t *testing.T) {
	s := newStore(t)
	subnets := filepath.Join(s.dir, "..", "subnet.env")
	s.must(os.WriteFile(subnets, []byte("FLANNEL_NETWORK=10.42.0.0/16\nFLANNEL_SUBNET=10.42.3.1/24\nFLANNEL_IPV6_SUBNET=fd00:3::1/64\nFLANNEL_MTU=1450\n"), 0o600))
	s.must(os.WriteFile(filepath.Join(s.book.Folder(), "10-pods.conflist"), fmt.Appendf(nil,
		`{"name":"cbr0","plugins":[{"type":"flannel","subnetFile":%q}]}`, subnets), 0o600))
	all, err := s.book.Read()
	if err != nil || len(all) != 1 || fmt.Sprint(all[0].Ranges) != "[10.42.3.1-10.42.3.254 fd00:3::1-fd00:3::ffff:ffff:ffff:ffff]" {
		t.Errorf("%+v, %v", all[0], err)
	}
	s.must(os.Remove(subnets))
	if all, err := s.book.Read(); err != nil || len(all) != 1 || len(all[0].Ranges) > 0 {
		t.Errorf("without the file: %+v, %v", all, err)
	}
}

// A folder that is not there is no folder without networks.
func TestNoFolder(t *testing.T) {
	s := newStore(t)
	s.must(os.RemoveAll(s.book.Folder()))
	if all, err := s.book.Read(); !errors.Is(err, ErrNoFolder) && !errors.Is(err, fs.ErrPermission) || len(all) > 0 { // of process 1
		t.Errorf("%+v, %v", all, err)
	}
}

// A file of the configuration that cannot be read costs its network only.
func TestUnreadableConfig(t *testing.T) {
	s := newStore(t)
	s.write("10.1.2.2", "aaaa\r\neth0")
	s.must(os.Symlink("/etc/passwd", filepath.Join(s.book.Folder(), "00-other.conf")))
	all, err := s.book.Read()
	if err == nil || len(all) != 1 || text(all[0]) != "2:aaaa" {
		t.Errorf("%d books, %v", len(all), err)
	}
}

func BenchmarkHostLocal(b *testing.B) {
	dir := b.TempDir()
	for i := range 10000 {
		if err := os.WriteFile(filepath.Join(dir, netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}).String()), []byte("0123456789abcdef\r\neth0"), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	root, err := openRoot(dir)
	if err != nil {
		b.Fatal(err)
	}
	defer root.close()
	all, _, err := readStore(root, dir, nil)
	if err != nil {
		b.Fatal(err)
	}
	for name, known := range map[string]map[netip.Addr]Reservation{"again": all, "first": nil} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				readStore(root, dir, known) //nolint:errcheck // as above
			}
		})
	}
}
