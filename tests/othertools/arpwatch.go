package othertools

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"

	"github.com/dupip/dupip/tests/lab"
)

// Arpwatch runs one arpwatch per bridge and uplink of a node, as systemd units of Debian's
// arpwatch@.service do, on bridges that appear later too.
//
// It runs none on the interfaces of routed pods. Each has one pod and one MAC behind it, so arpwatch
// would never see an address change its MAC. Several interfaces cannot share a process or its data:
// arpwatch reads its file only at the start, writes it every 15 minutes, and rejects "any".
type Arpwatch struct{ alarmLog }

// Name is "arpwatch".
func (*Arpwatch) Name() string { return "arpwatch" }

// Watch starts arpwatch on the bridges and the uplink of a node.
func (a *Arpwatch) Watch(ctx context.Context, n *lab.Node) error {
	if _, err := programPath("arpwatch"); err != nil {
		return err
	}
	// Subscribe, then list.
	updates, done := make(chan netlink.LinkUpdate, 64), make(chan struct{})
	if err := n.Exec(func() error { return netlink.LinkSubscribe(updates, done) }); err != nil {
		return fmt.Errorf("subscribe to devices of %s: %w", n.ShortName(), err)
	}
	// Later ones end with the lab.
	later, cancel := context.WithCancel(context.WithoutCancel(ctx))
	seen := map[int]bool{}
	links, err := n.Netlink().LinkList()
	for _, link := range links {
		err = errors.Join(err, a.listen(ctx, n, link, seen))
	}
	var watcher errgroup.Group
	watcher.Go(func() (err error) {
		for u := range updates {
			// The device may be gone again.
			if failed := a.listen(later, n, u.Link, seen); later.Err() == nil {
				err = errors.Join(err, failed)
			}
		}
		return err
	})
	n.Lab().OnClose(func() error {
		cancel()
		close(done)
		return watcher.Wait()
	})
	return err
}

// listen starts arpwatch on a device that is a bridge, or the uplink, and is up.
func (a *Arpwatch) listen(ctx context.Context, n *lab.Node, link netlink.Link, seen map[int]bool) error {
	attrs := link.Attrs()
	if attrs.Flags&net.FlagUp == 0 || link.Type() != "bridge" && attrs.Name != lab.UplinkName || seen[attrs.Index] || ctx.Err() != nil {
		return nil
	}
	seen[attrs.Index] = true
	path, err := programPath("arpwatch")
	if err != nil {
		return err
	}
	dir, err := tempDir(n)
	if err != nil {
		return err
	}
	table := filepath.Join(dir, "arp.dat")
	if err := os.WriteFile(table, nil, 0o600); err != nil {
		return err
	}
	var r arpwatchReport
	line := func(line string) {
		if ip, kind, ok := r.read(line); ok {
			a.add(ip, fmt.Sprintf("%s, on %s of %s", kind, attrs.Name, n.ShortName()))
		}
	}
	// In the foreground, reports on the terminal instead of by mail; addresses outside of the bridge's
	// subnet are watched, too (-a), without a report about each (-N).
	cmd := exec.Command(path, "-d", "-a", "-N", "-i", attrs.Name, "-f", table, "-F", excludeMAC(proberMAC(n), "ether", 14))
	_, err = start(ctx, n, dir, cmd, line, func() error { return n.HasPacketSocket(attrs.Index) }, func() bool {
		_, err := n.Netlink().LinkByIndex(attrs.Index)
		return err != nil // the device is gone
	})
	return err
}

// arpwatchAlarms are the reports that an address has another MAC than before. "new station" and "new
// activity" are about one holder; "bogon" (an address of another subnet), "ethernet mismatch" and the
// broadcast messages are about unusual packets and name no second holder.
var arpwatchAlarms = []string{"flip flop", "changed ethernet address", "reused old ethernet address"}

// arpwatchReport parses the output of arpwatch -d: reports in the form of mails, and syslog lines.
type arpwatchReport struct {
	kind string
}

// read parses the next line; ok if it completes an alarm.
func (r *arpwatchReport) read(line string) (ip netip.Addr, kind string, ok bool) {
	line = strings.TrimSpace(line)
	for _, alarm := range arpwatchAlarms {
		if rest, found := strings.CutPrefix(line, "arpwatch: "+alarm+" "); found {
			word, _, _ := strings.Cut(rest, " ")
			ip, err := netip.ParseAddr(word)
			return ip, alarm, err == nil
		}
	}
	if subject, found := strings.CutPrefix(line, "Subject: "); found {
		r.kind = ""
		for _, alarm := range arpwatchAlarms {
			if strings.HasPrefix(subject, alarm) {
				r.kind = alarm
			}
		}
	}
	if text, found := strings.CutPrefix(line, "ip address: "); found && r.kind != "" {
		kind, r.kind = r.kind, ""
		ip, err := netip.ParseAddr(text)
		return ip, kind, err == nil
	}
	return netip.Addr{}, "", false
}
