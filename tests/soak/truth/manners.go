package truth

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/lab"
)

// manners are whom a namespace answers.
type manners struct {
	// deaf: it filters ARP, which steps do only against the probes of agents.
	deaf bool
	// mute: it answers no ARP (arp_ignore 8, ip-sysctl.rst of the kernel).
	mute bool
}

// mannersOf reads them in the namespace.
func mannersOf(fd netns.NsHandle) (m manners, err error) {
	err = lab.ExecIn(fd, func() error {
		ignore, err := os.ReadFile("/proc/sys/net/ipv4/conf/all/arp_ignore")
		if err != nil {
			return err
		}
		m.mute = bytes.Equal(bytes.TrimSpace(ignore), []byte("8"))
		list := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETTABLE, unix.NLM_F_DUMP)
		list.AddData(&nl.Nfgenmsg{NfgenFamily: unix.NFPROTO_ARP})
		tables, err := list.Execute(unix.NETLINK_NETFILTER, 0)
		if m.deaf = len(tables) > 0; err != nil {
			return fmt.Errorf("list the tables of nftables: %w", err)
		}
		return nil
	})
	return m, err
}

// silence takes the addresses away for which nobody gets an answer. A device without ARP answers for IPv6 addresses that it had before.
func (v *view) silence(m manners) {
	silent := func(ip netip.Addr) bool { return ip.Is4() && m.mute || v.noARP[ip] && ip.Is4() }
	v.has, v.maybe = slices.DeleteFunc(v.has, silent), slices.DeleteFunc(v.maybe, silent)
	v.has = slices.DeleteFunc(v.has, func(ip netip.Addr) bool {
		if v.noARP[ip] {
			v.maybe = append(v.maybe, ip)
		}
		return v.noARP[ip]
	})
	v.deaf = m.deaf
}

// Guests tells which addresses a stack in user space answers for in a namespace: nobody can list them. Without addresses there
// is none any more.
func (w *Watcher) Guests(name string, ips ...netip.Addr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(ips) == 0 {
		delete(w.guests, name)
		return
	}
	w.guests[name] = ips
}
