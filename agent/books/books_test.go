package books

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/internal/bounds"
)

// podDevices lets these be the node's pod devices.
func podDevices(t *testing.T, names ...string) {
	before := isPodDevice
	isPodDevice = func(name string) bool { return slices.Contains(names, name) }
	t.Cleanup(func() { isPodDevice = before })
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// What real plugins report: host ends are veths of the node and no bridges, and addresses have their subnets.
func TestResults(t *testing.T) {
	podDevices(t, "veth0a62210b", "cali97e1defe654", "lxc8f2b6c1d9a3e", "eth0")
	for name, want := range map[string]string{
		"ptp":        "[veth0a62210b] [10.99.0.2/24 fd00:99::2/64]",
		"bridge":     "[veth0a62210b] [10.99.0.2/24]",
		"calico":     "[cali97e1defe654] [192.168.7.5/32]",
		"cilium":     "[lxc8f2b6c1d9a3e] [10.0.1.7/32]",
		"cilium-old": "[] [10.0.1.7/32]",
		"empty":      "[] []",
		"before-0.3": "[] []",
	} {
		entry, err := parseEntry(read(t, name))
		if err != nil {
			t.Fatal(name, err)
		}
		r := entry.Result
		if got := fmt.Sprint(r.HostEnds, r.Addresses); got != want || r.Usable() != (len(r.HostEnds) > 0) {
			t.Errorf("%s: %s, usable %t; want %s", name, got, r.Usable(), want)
		}
		const netns = "/var/run/netns/cni-d6ef5e41-a413-1a9a-3219-c9663bd12fd4"
		if entry.Namespace != "shop" || entry.Name != "older" || entry.UID != "uid-older" {
			t.Errorf("%s: %+v", name, entry)
		}
		if entry.Netns != netns && name != "calico" && name != "empty" && name != "before-0.3" {
			t.Errorf("%s: netns %s", name, entry.Netns)
		}
	}
}

// containerd has the results of all networks in one, without the lengths of subnets. go-cni adds an eth0 without a
// sandbox where a plugin names none: it is no host end.
func TestFromRuntime(t *testing.T) {
	podDevices(t, "veth0a62210b", "cali97e1defe654", "eth0")
	for name, want := range map[string]string{
		"containerd-bridge":     "[veth0a62210b] [10.99.0.2/32 fd00:99::2/128]",
		"containerd-calico":     "[cali97e1defe654] [192.168.7.5/32]",
		"containerd-cilium-old": "[] [10.0.1.7/32]",
	} {
		if r := FromRuntime(read(t, name)); fmt.Sprint(r.HostEnds, r.Addresses) != want {
			t.Errorf("%s: %v, want %s", name, r, want)
		}
	}
	for _, none := range []string{string(read(t, "crio")), "", "{}", `{"cniResult":null}`, `{"cniResult":{"Interfaces":{"a":null}}}`, `{"cniResult":7}`} {
		if r := FromRuntime([]byte(none)); r.Usable() || r.Names("") {
			t.Errorf("%.40s: %+v, want nothing", none, r)
		}
	}
}

// A hostile result is bounded.
func TestHostileResult(t *testing.T) {
	podDevices(t, "veth0")
	many := strings.Repeat(`{"name":"veth0"},`, 1000) + `{"name":"` + strings.Repeat("x", 1000) + `"}`
	ips := func(n int) string {
		return strings.Repeat(`{"address":"10.0.0.1/24"},`, n-1) + `{"address":"127.0.0.1/8"}`
	}
	entry := func(n int) []byte {
		return []byte(`{"kind":"cniCacheV1","ifName":"eth0","result":{"interfaces":[` + many + `],"ips":[` + ips(n) + `]}}`)
	}
	before := bounds.Counts()["too many host ends in a CNI result"]
	e, err := parseEntry(entry(maxAddresses))
	if err != nil || len(e.Result.HostEnds) > maxHostEnds || len(e.Result.Addresses) != maxAddresses-1 {
		t.Errorf("%+v, error %v", e, err)
	}
	if n := bounds.Counts()["too many host ends in a CNI result"] - before; n != 1001-maxHostEnds {
		t.Errorf("%d host ends are counted", n)
	}
	// An address beyond those that are read would count as not given.
	if e, err := parseEntry(entry(maxAddresses + 1)); err == nil {
		t.Errorf("too many addresses: %+v", e)
	}
	config := func(n int) []byte {
		return []byte(`{"cniResult":{"Interfaces":{"eth0":{"IPConfigs":[` + strings.Repeat(`{"IP":"10.0.0.1"},`, n-1) + `{"IP":"10.0.0.2"}]}}}}`)
	}
	if few, many := FromRuntime(config(maxAddresses)), FromRuntime(config(maxAddresses+1)); few == nil || many != nil {
		t.Errorf("a runtime's result has %v; with too many addresses %v", few, many)
	}
	for _, bad := range []string{"", "{", `{"kind":"cniCacheV2","ifName":"eth0"}`, `{"kind":"cniCacheV1","ifName":"net1"}`, `{"kind":"cniCacheV1","ifName":"eth0","result":{"ips":[{"address":"x"}]}}`} {
		if _, err := parseEntry([]byte(bad)); err == nil {
			t.Errorf("%q is taken for an entry", bad)
		}
	}
}

// cache returns one in a folder with these files.
func cache(t *testing.T, files map[string]string) (*Cache, string) {
	dir := t.TempDir()
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return NewCache(dir), dir
}

func TestCache(t *testing.T) {
	podDevices(t, "veth0a62210b")
	ptp := string(read(t, "ptp"))
	c, dir := cache(t, map[string]string{
		"pods-aa11-eth0": ptp, "a-net-with-dashes-bb22-eth0": ptp, "cni-loopback-aa11-lo": "{}", "net1-aa11-net1": "{}", "broken-cc33-eth0": "{",
	})
	if list, err := c.List(); err != nil || !slices.Equal(slices.Sorted(slices.Values(list)), []string{"aa11", "bb22", "cc33"}) {
		t.Errorf("listed %v, error %v", list, err)
	}
	for _, sandbox := range []string{"aa11", "bb22"} {
		if e, err := c.Read(sandbox); err != nil || !e.Result.Names("veth0a62210b") {
			t.Errorf("%s: %+v, error %v", sandbox, e, err)
		}
	}
	if _, err := c.Read("cc33"); err == nil {
		t.Error("a broken entry is read")
	}
	if _, err := c.Read("dd44"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an entry that is not there: %v", err)
	}
	// It is found as soon as it is there, also within one tick of the file system's clock.
	tick := time.Now()
	for n := range 5 {
		sandbox := fmt.Sprint("ee", n)
		if err := os.WriteFile(filepath.Join(dir, "pods-"+sandbox+"-eth0"), []byte(ptp), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(dir, tick, tick); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(sandbox); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := NewCache(filepath.Join(dir, "none")).List(); err == nil || len(list) != 0 {
		t.Errorf("no folder: %v, error %v", list, err)
	}
}

// A folder with more entries than are listed says so for a sandbox that is not among them: it may be there.
func TestCrowdedCache(t *testing.T) {
	dir := t.TempDir()
	for n := range maxEntries + 1 {
		if err := os.Symlink("nowhere", filepath.Join(dir, fmt.Sprintf("pods-%d-eth0", n))); err != nil { // faster than a file
			t.Fatal(err)
		}
	}
	c := NewCache(dir)
	if list, err := c.List(); err != nil || len(list) != maxEntries {
		t.Errorf("%d listed, error %v, want %d", len(list), err, maxEntries)
	}
	if _, err := c.Read("aa11"); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an entry that may not be listed: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "pods-0-eth0")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read("aa11"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an entry that is not there: %v", err)
	}
}

// What is no regular file is not opened, links do not lead out of the node's file system, and nothing waits.
func TestHostileFiles(t *testing.T) {
	c, dir := cache(t, map[string]string{"huge-aa11-eth0": strings.Repeat(" ", maxEntry+1), "real": string(read(t, "ptp"))})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(unix.Mkfifo(filepath.Join(dir, "fifo-bb22-eth0"), 0o600))
	must(os.Mkdir(filepath.Join(dir, "folder-cc33-eth0"), 0o700))
	must(os.Symlink(filepath.Join(dir, "real"), filepath.Join(dir, "link-dd44-eth0")))
	must(os.Symlink("/proc/self/root", filepath.Join(dir, "magic")))
	for _, sandbox := range []string{"aa11", "bb22", "cc33", "dd44"} {
		if _, err := c.Read(sandbox); err == nil {
			t.Errorf("%s is read", sandbox)
		}
	}
	if _, err := NewCache(filepath.Join(dir, "magic", dir)).List(); err == nil {
		t.Error("a link of /proc is followed")
	}
}
