package doctor

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/detector/cluster"
)

// checkGossipPort: could an agent have the port, with TCP and with UDP?
func checkGossipPort(_ context.Context, known *facts) finding {
	if !known.joined() {
		return skip(aloneText)
	}
	if s := known.status; s != nil && !s.Cluster.Alone {
		return ok("%s, the agent's", s.Cluster.Address)
	}
	const other = "choose another --gossip-port, the same on all nodes, or stop what has it: "
	port := known.opts.GossipPort
	address := &net.TCPAddr{Port: port}
	if bind := known.opts.Bind; bind != "" {
		ip, err := netip.ParseAddr(bind)
		if err != nil {
			return fail("give --bind an address of this node", "%q is no IP address", bind)
		}
		if !ip.Unmap().IsUnspecified() {
			address.IP = ip.Unmap().AsSlice()
		}
	}
	err := bindable(address)
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return fail(fmt.Sprintf("%sss -lntp 'sport = :%d'", other, port), "TCP %s is in use by something else", address)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return fail("give --bind an address of this node, or leave it out", "%s is no address of this node", address.IP)
	case errors.Is(err, unix.EACCES):
		return fail("ports below 1024 need CAP_NET_BIND_SERVICE: choose another --gossip-port", "%s is not allowed", address)
	case err != nil:
		return fail("choose another --bind or --gossip-port", "%s: %v", address, err)
	}
	ip, _ := netip.AddrFromSlice(address.IP)
	if udpInUse(netip.AddrPortFrom(ip.Unmap(), uint16(port))) {
		return fail(fmt.Sprintf("%sss -lnup 'sport = :%d'", other, port), "UDP %s is in use by something else", address)
	}
	return ok("%s is free, TCP and UDP", address)
}

// udpInUse says whether a socket has the port at the address, or one that includes it.
// It reads the kernel's list: a UDP socket bound to see would keep an agent out.
func udpInUse(address netip.AddrPort) bool {
	for _, name := range []string{"udp", "udp6"} {
		file, err := os.Open("/proc/thread-self/net/" + name)
		if err != nil {
			continue
		}
		defer file.Close()
		for lines := bufio.NewScanner(file); lines.Scan(); {
			fields := strings.Fields(lines.Text())
			if len(fields) < 2 {
				continue
			}
			bound, good := parseSocket(fields[1])
			if good && bound.Port() == address.Port() &&
				(bound.Addr() == address.Addr() || bound.Addr().IsUnspecified() || !address.Addr().IsValid()) {
				return true
			}
		}
	}
	return false
}

// parseSocket reads an address of /proc/net/udp: words of 32 bits in the byte order of
// the machine, which is little-endian on all that we run on, and the port.
func parseSocket(text string) (netip.AddrPort, bool) {
	host, port, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(host)
	number, portErr := strconv.ParseUint(port, 16, 16)
	if err != nil || portErr != nil || len(raw)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for word := range slices.Chunk(raw, 4) {
		slices.Reverse(word)
	}
	addr, good := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(addr.Unmap(), uint16(number)), good
}

const (
	// maxTargets bounds the addresses that are tried.
	maxTargets = 16
	dialTime   = 2 * time.Second
)

// checkJoin: are those there whom an agent is to join? A connection that says nothing is
// a line in their log at most; where members are known nobody is disturbed.
func checkJoin(ctx context.Context, known *facts) finding {
	if len(known.opts.Join) == 0 {
		if known.joined() {
			return ok("no --join: others join this node")
		}
		return skip(aloneText)
	}
	if s := known.status; s != nil && s.Cluster.Members[string(cluster.Alive)] > 1 {
		return ok("joined, see \"gossip\"")
	}
	var reached, failed []string
	var own int
	addresses, unresolved := resolveAll(ctx, known.opts.Join, known.opts.GossipPort)
	for n, err := range dialAll(ctx, addresses) {
		switch {
		case isOwn(addresses[n].Addr()):
			own++
		case err == nil:
			reached = append(reached, addresses[n].String())
		default:
			failed = append(failed, fmt.Sprintf("%s (%s)", addresses[n], dialTrouble(err)))
		}
	}
	failed = append(failed, unresolved...)
	switch {
	case len(reached) > 0 && len(failed) == 0:
		return ok("%s can be reached by TCP", some(reached))
	case len(reached) > 0:
		return warn("one that answers is enough to join; allow TCP and UDP between the nodes, or take the others off the list",
			"%s can be reached by TCP, not %s", some(reached), some(failed))
	case len(failed) > 0:
		return warn("see whether agents run there, and allow TCP and UDP between the nodes; the first node of a cluster finds nobody",
			"nobody to join: %s", some(failed))
	case own > 0:
		return ok("--join names this node only: the first of a cluster")
	}
	return warn("name other nodes with --join", "--join leads to no address")
}

// resolveAll finds addresses to try, and says what has none.
func resolveAll(ctx context.Context, join []string, port int) (addresses []netip.AddrPort, unresolved []string) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	for _, text := range join {
		host, at := strings.Trim(text, "[]"), strconv.Itoa(port)
		if _, err := netip.ParseAddr(host); err != nil {
			host = text
			if name, digits, err := net.SplitHostPort(text); err == nil {
				host, at = name, digits
			}
		}
		number, err := strconv.ParseUint(at, 10, 16)
		if err != nil || number == 0 {
			unresolved = append(unresolved, fmt.Sprintf("%s (there is no port %s)", text, at))
			continue
		}
		found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		if err != nil {
			unresolved = append(unresolved, fmt.Sprintf("%s (not resolved)", text))
		}
		for _, ip := range found {
			address := netip.AddrPortFrom(ip.Unmap(), uint16(number))
			if len(addresses) < maxTargets && !slices.Contains(addresses, address) {
				addresses = append(addresses, address)
			}
		}
	}
	return addresses, unresolved
}

// dialAll connects to all at once and returns the outcomes in their order.
func dialAll(ctx context.Context, addresses []netip.AddrPort) []error {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	outcomes := make([]error, len(addresses))
	var group sync.WaitGroup
	for n, address := range addresses {
		group.Go(func() {
			var dialer net.Dialer
			conn, err := dialer.DialContext(ctx, "tcp", address.String())
			if err == nil {
				conn.Close()
			}
			outcomes[n] = err
		})
	}
	group.Wait()
	return outcomes
}

func dialTrouble(err error) string {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, context.DeadlineExceeded), os.IsTimeout(err):
		return "no answer"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "no way there"
	}
	return "not reached"
}

// isOwn says whether this node has the address.
func isOwn(ip netip.Addr) bool {
	addrs, _ := net.InterfaceAddrs()
	return slices.ContainsFunc(addrs, func(a net.Addr) bool {
		prefix, err := netip.ParsePrefix(a.String())
		return err == nil && prefix.Addr().Unmap() == ip
	})
}

// portOf is the port of an address, for a sentence.
func portOf(address string) string {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return "of gossip"
	}
	return "port " + port
}
