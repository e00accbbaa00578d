package othertools

import (
	"context"
	"errors"
	"net/netip"
	"os/exec"
	"regexp"
	"strings"
	"sync/atomic"

	"github.com/dupip/dupip/tests/lab"
)

// Tshark captures on all interfaces of a node, also later ones. Its alarms are those of Wireshark's ARP
// dissector (arp.detect_duplicate_ips, on by default), which remembers the first MAC of an address
// during the whole capture.
type Tshark struct{ alarmLog }

// Name is "tshark".
func (*Tshark) Name() string { return "tshark" }

// Watch starts a capture on the node.
func (t *Tshark) Watch(ctx context.Context, n *lab.Node) error {
	path, err := programPath("tshark")
	if err != nil {
		return err
	}
	dir, err := tempDir(n)
	if err != nil {
		return err
	}
	var listening atomic.Bool
	line := func(s string) {
		// "Capturing on 'any'" comes before the child that captures is ready.
		if strings.Contains(s, "Capture started") {
			listening.Store(true)
		}
		for _, ip := range parseTshark(s) {
			t.add(ip, "Duplicate IP address configured, on "+n.ShortName())
		}
	}
	cmd := exec.Command(path, "-n", "-l", "-i", "any", "-f", "arp and "+excludeMAC(proberMAC(n), "arp", 0),
		"-Y", "arp.duplicate-address-detected", "-T", "fields", "-e", "_ws.expert.message")
	_, err = start(ctx, n, dir, cmd, line, func() error {
		if !listening.Load() {
			return errors.New("tshark does not listen yet")
		}
		return nil
	}, func() bool { return false })
	return err
}

var tsharkMessage = regexp.MustCompile(`Duplicate IP address configured \(([0-9.]+)\)`)

// parseTshark returns the duplicate addresses in a line of tshark.
func parseTshark(line string) []netip.Addr {
	var all []netip.Addr
	for _, m := range tsharkMessage.FindAllStringSubmatch(line, -1) {
		if ip, err := netip.ParseAddr(m[1]); err == nil {
			all = append(all, ip)
		}
	}
	return all
}
