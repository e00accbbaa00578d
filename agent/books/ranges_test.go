package books

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func ipam(text string) *Reserved {
	return parseNetwork(fmt.Appendf(nil, `{"name":"pods","type":"ptp","ipam":{"type":"host-local",%s}}`, text))
}

func (n *Reserved) with(ips ...string) *Reserved {
	n.Reservations = make(map[netip.Addr]Reservation)
	for _, ip := range ips {
		n.Reservations[netip.MustParseAddr(ip)] = Reservation{Sandbox: "aaaa"}
	}
	return n
}

func TestLeft(t *testing.T) {
	const unknown = -1
	many := func(first string, count int) (ips []string) {
		ip := netip.MustParseAddr(first)
		for range count {
			ips = append(ips, ip.String())
			ip = ip.Next()
		}
		return ips
	}
	const both = `"ranges":[[{"subnet":"10.1.2.0/24"}],[{"subnet":"fd00::/120"}]]`
	for name, test := range map[string]struct {
		ipam     string
		reserved []string
		want     float64
	}{
		"nothing is reserved":                {`"subnet":"10.1.2.0/24"`, nil, 1},
		"one":                                {`"subnet":"10.1.2.0/24"`, []string{"10.1.2.9"}, 252.0 / 253},
		"the gateway's does not count":       {`"subnet":"10.1.2.0/24"`, []string{"10.1.2.1"}, 1},
		"the gateway is out of the range":    {`"subnet":"10.1.2.0/24","rangeStart":"10.1.2.11","rangeEnd":"10.1.2.20"`, []string{"10.1.2.11"}, 0.9},
		"the gateway is the first":           {`"subnet":"10.1.2.0/24","rangeStart":"10.1.2.11","rangeEnd":"10.1.2.20","gateway":"10.1.2.11"`, []string{"10.1.2.12"}, 8.0 / 9},
		"the gateway is the last":            {`"subnet":"10.1.2.0/24","rangeStart":"10.1.2.11","rangeEnd":"10.1.2.20","gateway":"10.1.2.20"`, []string{"10.1.2.12"}, 8.0 / 9},
		"out of the range":                   {`"subnet":"10.1.2.0/24"`, []string{"10.1.3.9", "fd00::9"}, 1},
		"used up":                            {`"subnet":"10.1.2.0/29"`, many("10.1.2.2", 5), 0},
		"and more of it":                     {`"subnet":"10.1.2.0/29"`, many("10.1.2.0", 8), 0},
		"nothing but the gateway":            {`"subnet":"10.1.2.0/24","rangeStart":"10.1.2.1","rangeEnd":"10.1.2.1"`, nil, unknown},
		"a range across bytes":               {`"subnet":"10.0.0.0/8","rangeStart":"10.1.255.252","rangeEnd":"10.2.0.3"`, many("10.1.255.254", 4), 0.5},
		"several ranges":                     {`"ranges":[[{"subnet":"10.1.2.0/30"},{"subnet":"10.1.3.0/30"}]]`, []string{"10.1.2.2"}, 0.5},
		"IPv6":                               {`"subnet":"fd00::/120"`, many("fd00::2", 127), 127.0 / 254},
		"a large range":                      {`"subnet":"fd00::/64"`, many("fd00::2", 1000), 1},
		"IPv4 has less left":                 {both, []string{"10.1.2.9"}, 252.0 / 253},
		"IPv6 has less left":                 {both, many("fd00::2", 127), 127.0 / 254},
		"IPv4 is used up, IPv6 is plentiful": {`"ranges":[[{"subnet":"10.1.2.0/30"}],[{"subnet":"fd00::/64"}]]`, []string{"10.1.2.2"}, 0},
		"no range":                           {`"subnet":"usePodCidr"`, []string{"10.1.2.2"}, unknown},
	} {
		got, ok := ipam(test.ipam).with(test.reserved...).Left()
		if ok != (test.want != unknown) || ok && math.Abs(got-test.want) > 1e-9 {
			t.Errorf("%s: %v, %t; want %v", name, got, ok, test.want)
		}
	}
	n := ipam(both)
	n.Err = errors.New("it is a pipe")
	if left, ok := n.Left(); ok {
		t.Errorf("a store that cannot be read has %v left", left)
	}
}

// Ranges that host-local refuses cover nothing.
func TestRefusedRanges(t *testing.T) {
	for name, text := range map[string]string{
		"reversed":              `"subnet":"10.1.2.0/24","rangeStart":"10.1.2.50","rangeEnd":"10.1.2.20"`,
		"starts in IPv6":        `"subnet":"10.1.2.0/24","rangeStart":"fd00::1"`,
		"ends in IPv6":          `"subnet":"10.1.2.0/24","rangeEnd":"fd00::1"`,
		"an IPv6 gateway":       `"subnet":"10.1.2.0/24","gateway":"fd00::1"`,
		"an IPv4 gateway":       `"subnet":"fd00::/64","gateway":"10.1.2.1"`,
		"a start of no address": `"subnet":"10.1.2.0/24","rangeStart":"10.1.2"`,
		"an end of no address":  `"subnet":"10.1.2.0/24","rangeEnd":"last"`,
		"a subnet of one":       `"subnet":"10.1.2.1/32"`,
		"no subnet":             `"rangeStart":"10.1.2.1","rangeEnd":"10.1.2.20"`,
		"the last subnet":       `"subnet":"fd00::/127"`,
	} {
		if n := ipam(text); n == nil || len(n.Ranges) != 0 || n.Covers(netip.MustParseAddr("10.1.2.30")) {
			t.Errorf("%s: %+v", name, n)
		}
	}
	var many []string
	for n := range maxAddresses + 5 {
		many = append(many, fmt.Sprintf(`[{"subnet":"10.1.%d.0/24"}]`, n))
	}
	if n := len(ipam(`"ranges":[` + strings.Join(many, ",") + `]`).Ranges); n != maxAddresses {
		t.Errorf("%d ranges", n)
	}
}

// A network's name is that of its folder: one that libcni refuses must not lead to another folder.
func TestNetworkNames(t *testing.T) {
	long := strings.Repeat("x", maxNetworkName)
	for name, want := range map[string]bool{
		"pods": true, "k8s-pod-network": true, "cbr0": true, "10.5_a": true, long: true,
		long + "x": false, "": false, ".": false, "/": false, "..": false, "..x": false, ".x": false, "a/b": false, "/a": false, "a/": false, "a b": false, "a\x00": false, "ä": false, "$(a)": false,
	} {
		data := fmt.Appendf(nil, `{"name":%q,"type":"ptp","ipam":{"type":"host-local","subnet":"10.1.2.0/24"}}`, name)
		if strings.Contains(name, "\x00") {
			data = []byte(`{"name":"a\u0000","type":"ptp","ipam":{"type":"host-local","subnet":"10.1.2.0/24"}}`)
		}
		n := parseNetwork(data)
		if (n != nil) != want || want && n.Store != "/var/lib/cni/networks/"+name {
			t.Errorf("%.20q: %+v", name, n)
		}
	}
}

// A person edits a reservation, which does not change the folder.
func TestEditedInPlace(t *testing.T) {
	s := newStore(t)
	s.write("10.1.2.2", "aaaa\r\neth0")
	expect := func(when, want string) {
		t.Helper()
		if got := text(s.read()); got != want {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	expect("first", "2:aaaa")
	s.write("10.1.2.2", "bbbb\r\neth0")
	expect("at once", "2:bbbb")
	expect("and again", "2:bbbb")
}

// host-local reads and writes files with the usual text of an address only.
func TestOtherNames(t *testing.T) {
	s := newStore(t)
	names := []string{"fe80::1%$(reboot)", "::ffff:10.1.2.2", "010.1.2.2", "fd00:0::2", "FD00::2", "10.1.2.2.tmp", "10.1.2.2 "}
	for _, name := range names {
		s.write(name, "aaaa\r\neth0")
	}
	s.write("fd00::3", "bbbb\r\neth0")
	r := s.read()
	if len(r.Reservations) != 1 || r.Reservations[netip.MustParseAddr("fd00::3")].Sandbox != "bbbb" || r.Err != nil {
		t.Errorf("%+v", r)
	}
}

// A file that cannot be read for its permissions costs the book.
func TestNoPermission(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root reads everything")
	}
	s := newStore(t)
	s.write("10.1.2.2", "aaaa\r\neth0")
	s.must(os.Chmod(filepath.Join(s.dir, "10.1.2.2"), 0))
	if r := s.read(); r.Err == nil || r.Reservations != nil {
		t.Errorf("%+v", r)
	}
}
