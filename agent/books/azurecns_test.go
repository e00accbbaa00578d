package books

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// endpoint is one of a sandbox in CNS's file, with a list of addresses.
func endpoint(sandbox, ips string) string {
	return fmt.Sprintf(`%q:{"PodName":"web-0","PodNamespace":"shop","IfnameToIPMap":{"eth0":{"IPv4":[%s],"NICType":""}}}`, sandbox, ips)
}

func endpoints(list ...string) string { return `{"Endpoints":{` + strings.Join(list, ",") + `}}` }

const oneIP = `{"IP":"10.1.2.2","Mask":"//8AAA=="}`

// addresses are all reservations, sorted, with the beginnings of sandboxes.
func addresses(all map[netip.Addr]Reservation) string {
	var list []string
	for _, ip := range slices.SortedFunc(maps.Keys(all), netip.Addr.Compare) {
		r := all[ip]
		list = append(list, fmt.Sprintf("%s:%s", ip, r.Sandbox[:min(len(r.Sandbox), 4)]))
	}
	return strings.Join(list, " ")
}

func TestParseEndpoints(t *testing.T) {
	good, err := os.ReadFile("testdata/azure-endpoints.json")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ data, want, err string }{
		"a node's file": {string(good), "10.241.0.10:0a49 10.241.0.11:1b2a fd12:3456::1a:0a49", ""},
		"no pods":       {`{"Endpoints":{}}`, "", ""},
		"an empty file": {"", "", "unexpected end of JSON input"},
		"cut off":       {string(good[:len(good)/2]), "", "unexpected end of JSON input"},
		"an empty map":  {"{}", "", "it has no endpoints"},
		"null":          {`{"Endpoints":null}`, "", "it has no endpoints"},
		"no JSON":       {"endpoints", "", "invalid character"},
		"a list":        {"[]", "", "cannot unmarshal array"},
		// CNS's store always has the key: what has none is another file.
		"endpoints without their key":    {"{" + endpoint("aaaa", oneIP) + "}", "", "it has no endpoints"},
		"another key beside them":        {`{"TimeStamp":"2026-01-01T00:00:00Z",` + endpoints(endpoint("aaaa", oneIP))[1:], "10.1.2.2:aaaa", ""},
		"no address":                     {endpoints(endpoint("aaaa", `{"IP":"5","Mask":null}`)), "", "unable to parse IP"},
		"an empty address":               {endpoints(endpoint("aaaa", `{"IP":"","Mask":null},{},null`)), "", ""},
		"an address with a zone":         {endpoints(endpoint("aaaa", `{"IP":"fd00::2%eth0"}`)), "", ""},
		"IPv4 as IPv6":                   {endpoints(endpoint("aaaa", `{"IP":"::ffff:10.1.2.2"}`)), "10.1.2.2:aaaa", ""},
		"nothing in it":                  {endpoints(`"aaaa":null,"bbbb":{},"cccc":{"IfnameToIPMap":{"eth0":null}}`), "", ""},
		"of an old azure-vnet":           {endpoints(endpoint("0a491761-eth0", oneIP)), "10.1.2.2:", ""},
		"one address twice in a sandbox": {endpoints(endpoint("aaaa", oneIP+","+oneIP)), "10.1.2.2:aaaa", ""},
		"one address of two sandboxes":   {endpoints(endpoint("aaaa", oneIP), endpoint("bbbb", oneIP)), "10.1.2.2:", ""},
		"of three":                       {endpoints(endpoint("aaaa", oneIP), endpoint("bbbb", oneIP), endpoint("cccc", oneIP)), "10.1.2.2:", ""},
		"of a sandbox and of an old one": {endpoints(endpoint("aaaa", oneIP), endpoint("0a491761-eth0", oneIP)), "10.1.2.2:", ""},
	} {
		for range 4 { // the order of a map must not matter
			all, err := parseEndpoints([]byte(test.data), version{})
			if failed := fmt.Sprint(err); test.err == "" && err != nil || !strings.Contains(failed, cmp.Or(test.err, failed)) || (all == nil) != (err != nil) {
				t.Errorf("%s: error %v, want %q", name, err, test.err)
			}
			if got := addresses(all); got != test.want {
				t.Errorf("%s: %q, want %q", name, got, test.want)
			}
		}
	}
}

// Of an address of several sandboxes it is known which they are, unless one of them is not, or they are too many.
func TestSandboxes(t *testing.T) {
	many := make([]string, maxAmong+3)
	for n := range many {
		many[n] = endpoint(fmt.Sprint("sandbox", n), oneIP)
	}
	for name, test := range map[string]struct {
		list []string
		want string
	}{
		"one":              {[]string{endpoint("aaaa", oneIP)}, ""},
		"three":            {[]string{endpoint("bbbb", oneIP+","+oneIP), endpoint("cccc", oneIP), endpoint("aaaa", oneIP)}, "aaaa bbbb cccc"},
		"one is not known": {[]string{endpoint("aaaa", oneIP), endpoint("bbbb", oneIP), endpoint("0a491761-eth0", oneIP)}, ""},
		"too many":         {many, ""},
	} {
		for range 4 { // the order of a map must not matter
			all, err := parseEndpoints([]byte(endpoints(test.list...)), version{})
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(all[netip.MustParseAddr("10.1.2.2")].Sandboxes(), " "); got != test.want {
				t.Errorf("%s: the sandboxes are %q, want %q", name, got, test.want)
			}
		}
	}
}

func TestTooManyEndpoints(t *testing.T) {
	list := make([]string, maxReservations+1)
	for n := range list {
		list[n] = fmt.Sprintf(`"%d":{}`, n)
	}
	if all, err := parseEndpoints([]byte(endpoints(list...)), version{}); err == nil || all != nil {
		t.Errorf("%d endpoints are read", len(list))
	}
}

// The store is read as CNS writes it: a new file that takes the place of the last one.
func TestAzureCNS(t *testing.T) {
	store := filepath.Join(t.TempDir(), "azure-endpoints.json")
	root, err := openRoot(filepath.Dir(store))
	if err != nil {
		t.Fatal(err)
	}
	defer root.close()
	var known map[netip.Addr]Reservation
	expect := func(when, want, failure string) {
		t.Helper()
		all, _, err := readEndpoints(root, store, known)
		if got := addresses(all); got != want || (err != nil) != (failure != "") || err != nil && (!strings.Contains(err.Error(), failure) || all != nil) {
			t.Errorf("%s: %q, want %q; error %v, want %q", when, got, want, err, failure)
		}
		known = all
	}
	replace := func(create func(at string) error) {
		t.Helper()
		if err := create(store + ".new"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(store+".new", store); err != nil {
			t.Fatal(err)
		}
	}
	write := func(content string) {
		t.Helper()
		replace(func(at string) error { return os.WriteFile(at, []byte(content), 0o600) })
	}

	expect("no file", "", "Azure CNS keeps no endpoints there")
	write(endpoints(endpoint("aaaa", oneIP)))
	expect("one", "10.1.2.2:aaaa", "")
	known[netip.MustParseAddr("10.1.2.2")] = Reservation{Sandbox: "last", version: known[netip.MustParseAddr("10.1.2.2")].version}
	expect("it has not changed, and is not read again", "10.1.2.2:last", "")
	write(endpoints(endpoint("bbbb", oneIP)))
	expect("another sandbox", "10.1.2.2:bbbb", "")
	write(`{"Endpoints":{"bbbb":`)
	expect("broken", "", "unexpected end of JSON input")
	write(endpoints(endpoint("bbbb", oneIP)))
	expect("whole again", "10.1.2.2:bbbb", "")
	write(endpoints(endpoint("bbbb", oneIP)) + strings.Repeat(" ", maxEndpoints))
	expect("too large", "", "it is larger than")
	replace(func(at string) error { return os.Symlink("/etc/hostname", at) })
	expect("a link", "", "it is no file")
	replace(func(at string) error { return unix.Mkfifo(at, 0o600) })
	expect("a pipe", "", "it is no file")
	write(endpoints())
	expect("all are gone", "", "")
}

func TestAzureNetworks(t *testing.T) {
	for name, test := range map[string]struct{ config, want string }{
		"azure-vnet": {
			`{"cniVersion":"0.3.0","name":"azure","plugins":[{"type":"azure-vnet","mode":"transparent","ipam":{"type":"azure-cns","mode":"overlay"}},{"type":"portmap"}]}`,
			"azure-cns azure azure-vnet",
		},
		"Cilium": {
			`{"cniVersion":"0.3.1","name":"cilium","plugins":[{"type":"cilium-cni","ipam":{"type":"azure-ipam"},"log-file":"/var/log/cilium-cni.log"}]}`,
			"azure-cns cilium cilium-cni",
		},
		"Cilium behind azure-vnet": {
			`{"cniVersion":"0.3.0","name":"azure","plugins":[{"type":"azure-vnet","ipam":{"type":"azure-cns"}},{"name":"cilium","type":"cilium-cni","ipam":{"type":""}}]}`,
			"azure-cns azure azure-vnet",
		},
		"azure-vnet without CNS": {`{"name":"azure","plugins":[{"type":"azure-vnet","ipam":{"type":"azure-vnet-ipam"}}]}`, ""},
	} {
		got := ""
		if n := parseNetwork([]byte(test.config)); n != nil {
			got = n.Book + " " + n.Network + " " + n.Plugin
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// A network of CNS has a book beside those of host-local, also if it cannot be read.
func TestAzureBesideHostLocal(t *testing.T) {
	s := newStore(t)
	s.write("10.1.2.2", "aaaa\r\neth0")
	azure := filepath.Join(filepath.Dir(filepath.Dir(s.dir)), "conf", "20-azure.conflist")
	s.must(os.WriteFile(azure, []byte(`{"name":"azure","plugins":[{"type":"azure-vnet","ipam":{"type":"azure-cns"}}]}`), 0o600))
	all, err := s.book.Read()
	if err != nil || len(all) != 2 || text(all[0]) != "2:aaaa" || all[1].Book != BookAzureCNS || all[1].Store != cnsEndpoints || all[1].Err == nil {
		t.Errorf("%+v, error %v", all, err)
	}
}

// FuzzEndpoints: whatever the file has, it is read or refused, and what is reserved are addresses of pods.
func FuzzEndpoints(f *testing.F) {
	f.Add([]byte(endpoints(endpoint("aaaa", oneIP), endpoint("bbbb", `{"IP":"fd00::2"}`))))
	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := parseEndpoints(data, version{})
		if (all == nil) != (err != nil) {
			t.Errorf("%v, %v", all, err)
		}
		for ip := range all {
			if !ip.IsGlobalUnicast() || ip.Is4In6() || ip.Zone() != "" {
				t.Errorf("%s is reserved", ip)
			}
		}
	})
}
