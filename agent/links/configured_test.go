package links

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/internal/testneeds"
)

// An address with a lifetime, as DHCP gives one, and since when the node has it: also when it is renewed.
func TestListConfigured(t *testing.T) {
	testneeds.Root(t)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "configured0"
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "configured1"}); err != nil {
		t.Fatal(err)
	}
	link, err := netlink.LinkByName(attrs.Name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(link) })
	addr := func(text string, lifetime int) *netlink.Addr {
		ip, subnet, err := net.ParseCIDR(text)
		if err != nil {
			t.Fatal(err)
		}
		return &netlink.Addr{IPNet: &net.IPNet{IP: ip, Mask: subnet.Mask}, ValidLft: lifetime, PreferedLft: lifetime, Flags: unix.IFA_F_NODAD}
	}
	asked := make(map[netip.Addr]bool)
	want := map[string]bool{"10.81.9.20/24": true, "10.81.9.1/24": false, "fd00:81::20/64": true, "fd00:81::1/128": false}
	began := time.Now()
	for text, dynamic := range want {
		asked[netip.MustParsePrefix(text).Addr()] = true
		lifetime := 0
		if dynamic {
			lifetime = 600
		}
		if err := netlink.AddrAdd(link, addr(text, lifetime)); err != nil {
			t.Fatal(err)
		}
	}
	added := time.Now()
	time.Sleep(1500 * time.Millisecond) // what is measured is age
	if err := netlink.AddrReplace(link, addr("10.81.9.20/24", 900)); err != nil {
		t.Fatal(err)
	}
	if err := netlink.AddrAdd(link, addr("10.81.9.99/24", 0)); err != nil { // nobody asks for it
		t.Fatal(err)
	}
	list, err := ListConfigured(asked)
	if err != nil || len(list) != len(want) {
		t.Fatalf("%+v, %v", list, err)
	}
	for _, c := range list {
		dynamic, ok := want[c.Prefix.String()]
		if !ok || c.Dynamic != dynamic || c.Index != link.Attrs().Index || c.Device != attrs.Name {
			t.Errorf("%+v", c)
		}
		const tick = time.Second // the kernel's stamps may lag behind
		if c.Since.Before(began.Add(-tick)) || c.Since.After(added.Add(tick)) {
			t.Errorf("%s is there since %v, it was added between %v and %v", c.Prefix, c.Since, began, added)
		}
	}
}

// The kernel's stamps of 32 bits say nothing after 497 days.
func TestStamped(t *testing.T) {
	now := time.Now()
	const day = 24 * time.Hour
	for name, test := range map[string]struct {
		hundredths uint32
		uptime     time.Duration
		age        time.Duration // negative: not known
	}{
		"at boot":        {0, day, day},
		"now":            {8_640_000, day, 0},
		"a moment ahead": {8_640_050, day, 0},
		"later than now": {8_650_000, day, -1},
		"an hour ago":    {8_280_000, day, time.Hour},
		"after 496 days": {0, 496 * day, 496 * day},
		"after 498 days": {0, 498 * day, -1},
	} {
		got := stamped(test.hundredths, now, test.uptime)
		if test.age < 0 != got.IsZero() || test.age >= 0 && !got.Equal(now.Add(-test.age)) {
			t.Errorf("%s: %v", name, got)
		}
	}
	for size := range 32 { // a message that is cut anywhere
		parseConfigured(make([]byte, size), now, day)
	}
}
