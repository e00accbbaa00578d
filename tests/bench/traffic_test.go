package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/lab"
)

// stage is a node with two pods.
type stage struct {
	*bench
	node     *lab.Node
	from, to *lab.Pod
}

// watching is one way to watch the stage, until stop: none, if begin is nil.
type watching struct {
	what  string
	begin func(*stage) (p interface{ PID() int }, stop func() error)
}

var watchings = []watching{
	{"unobserved", nil},
	{"dupip, tcx", agentIn("tcx")},
	{"dupip, tc", agentIn("tc")},
	{"dupip, xdp", agentIn("xdp")},
	{"unobserved", nil},
	{"arpwatch", arpwatch},
	{"packet reader", reader},
}

// measureTraffic sends the same TCP stream under each way of watching, in turns.
func measureTraffic(b *bench) {
	n := b.Node("")
	s := &stage{b, n, b.Pod(n, "sender", lab.PodOptions{Addrs: []netip.Addr{n.IPv4(10)}}), b.Pod(n, "receiver", lab.PodOptions{Addrs: []netip.Addr{n.IPv4(11)}})}
	b.Do(s.from.Ping(s.to.Addrs()[0]))
	rates, cpu := make(map[string][]float64), make(map[string][]float64) // Gb/s; milliseconds per GB
	for round := range b.runs {
		for i := range watchings {
			// Each round begins with another, so that none has always the same before it.
			way := watchings[(i+round)%len(watchings)]
			var sent, took float64
			send := func() { sent, took = s.stream() }
			if way.begin == nil {
				send()
			} else {
				p, stop := way.begin(s)
				used := b.during(p, send)
				b.Do(stop())
				cpu[way.what] = append(cpu[way.what], used.Seconds()*1e3/(sent/1e9))
			}
			rates[way.what] = append(rates[way.what], 8*sent/1e9/took)
		}
	}
	b.title("ONE TCP STREAM, pod to pod over a bridge (%d runs of %s, in turns)", b.runs, b.tcp)
	unobserved := rates["unobserved"]
	spread := fmt.Sprintf("%.3g–%.3g Gb/s", slices.Min(unobserved), slices.Max(unobserved))
	b.row("unobserved", "", "%.3g Gb/s (%s in %d runs)", median(unobserved), spread, len(unobserved))
	for _, way := range watchings[1:] {
		goal := ""
		if strings.HasPrefix(way.what, "dupip") {
			goal = spread
		}
		if way.begin != nil {
			b.row(way.what, goal, "%.3g Gb/s, the watcher's CPU %.3g ms/GB", median(rates[way.what]), median(cpu[way.what]))
		}
	}
}

// agentIn starts an agent and waits until it has attached to both pods.
func agentIn(mode string) func(*stage) (interface{ PID() int }, func() error) {
	return func(s *stage) (interface{ PID() int }, func() error) {
		s.Helper()
		if mode == "tc" {
			// The agent would wait three quiet seconds before it makes a qdisc.
			s.eachQdisc(netlink.QdiscAdd)
		}
		a := s.Agent(s.node, "--attach", mode, "--log-level", "info")
		s.attached(a, s.from, s.to)
		return a, func() error {
			defer func() {
				if mode == "tc" {
					s.eachQdisc(netlink.QdiscDel)
				}
			}()
			return a.Stop()
		}
	}
}

// eachQdisc does something to the clsact qdisc of both pods' interfaces.
func (s *stage) eachQdisc(do func(netlink.Qdisc) error) {
	s.Helper()
	for _, p := range []*lab.Pod{s.from, s.to} {
		index, err := s.node.Ifindex(p.HostInterface)
		s.Do(err, s.node.Exec(func() error {
			return do(&netlink.GenericQdisc{
				QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT},
				QdiscType:  "clsact",
			})
		}))
	}
}

// arpwatch starts Debian's arpwatch on the bridge, where one would put it: one for all pods.
func arpwatch(s *stage) (interface{ PID() int }, func() error) {
	s.Helper()
	path, err := exec.LookPath("arpwatch")
	if err != nil {
		path = "/usr/sbin/arpwatch" // where Debian has it and not every PATH
	}
	table := s.TempDir() + "/arp.dat"
	s.Do(os.WriteFile(table, nil, 0o600))
	// In the foreground, without mail, without complaints about foreign subnets.
	return s.launch(exec.Command(path, "-d", "-Q", "-N", "-i", lab.Bridge, "-f", table), lab.Bridge)
}

// launch starts a program and waits until it listens at a device of the node.
func (s *stage) launch(cmd *exec.Cmd, device string) (interface{ PID() int }, func() error) {
	s.Helper()
	p, err := s.node.Launch(cmd)
	s.Do(err)
	index, err := s.node.Ifindex(device)
	s.Do(err)
	s.Eventually(cmd.Path+" listens", func() error { return s.node.HasPacketSocket(index) })
	return p, p.Stop
}

// readerVariable makes this test binary the packet reader, with the names of devices: a process
// of its own, so that its CPU time is its own.
const readerVariable = "DUPIP_BENCH_READER"

// reader starts the packet reader on the interfaces that dupip observes.
func reader(s *stage) (interface{ PID() int }, func() error) {
	s.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), readerVariable+"="+s.from.HostInterface+" "+s.to.HostInterface)
	return s.launch(cmd, s.to.HostInterface)
}

// readPackets is what one would write without BPF: a packet socket on each device, a system
// call for each frame, the IPv4 source address into a map. It reads no more of a frame than the
// headers and sees what comes in only, as the observer does. It does not return.
func readPackets(devices []string) {
	for _, device := range devices {
		ifi, err := net.InterfaceByName(device)
		if err != nil {
			panic(err)
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
		if err := errors.Join(err,
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20),
			unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
			unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: ifi.Index}),
		); err != nil {
			panic(err)
		}
		go func() {
			lastSeen := make(map[netip.Addr]time.Time)
			for frame := make([]byte, 128); ; {
				if size, err := unix.Read(fd, frame); err == nil && size >= 34 && frame[12] == 8 && frame[13] == 0 {
					lastSeen[netip.AddrFrom4([4]byte(frame[26:30]))] = time.Now()
				}
			}
		}()
	}
	select {}
}

const (
	tcpPort = 5001
	chunk   = 1 << 20
)

// stream sends one TCP stream for the time in the settings, and returns bytes and seconds. Neither
// end copies a byte, so that only the path is measured: the sender sends the pages of a file, the
// receiver discards the data. The sockets block: a goroutine that waits in the poller wakes up later
// than one in a system call.
func (s *stage) stream() (bytes, seconds float64) {
	s.Helper()
	out, in := s.connect()
	defer unix.Close(in)
	file, err := unix.MemfdCreate("dupip-bench", unix.MFD_CLOEXEC)
	s.Do(err)
	defer unix.Close(file)
	_, err = unix.Write(file, make([]byte, chunk))
	s.Do(err)
	sent := make(chan error, 1)
	began := time.Now()
	go func() {
		defer unix.Close(out)
		for { // once at least, however late it is
			var offset int64
			if _, err := unix.Sendfile(out, file, &offset, chunk); err != nil && !errors.Is(err, unix.EINTR) {
				sent <- fmt.Errorf("send: %w", err)
				return
			}
			if time.Since(began) >= s.tcp || s.Context().Err() != nil {
				sent <- context.Cause(s.Context())
				return
			}
		}
	}()
	for buf := make([]byte, chunk); ; {
		// For TCP the flag means: do not copy (tcp(7)).
		size, _, err := unix.Recvfrom(in, buf, unix.MSG_TRUNC)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			s.Do(fmt.Errorf("receive: %w", err))
		case size == 0:
			seconds = time.Since(began).Seconds()
			s.Do(<-sent)
			return bytes, seconds
		default:
			bytes += float64(size)
		}
	}
}

// connect makes a TCP connection between the pods. Its ends give up when nothing moves for a while.
func (s *stage) connect() (out, in int) {
	s.Helper()
	address := &unix.SockaddrInet4{Port: tcpPort, Addr: s.to.Addrs()[0].As4()}
	socket := func(p *lab.Pod) (fd int) {
		s.Helper()
		s.Do(p.Exec(func() (err error) {
			fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			return err
		}))
		limit := unix.Timeval{Sec: 5}
		s.Do(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit),
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit),
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
		return fd
	}
	listener, out := socket(s.to), socket(s.from)
	defer unix.Close(listener)
	s.Do(unix.Bind(listener, address), unix.Listen(listener, 1), unix.Connect(out, address))
	in, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
	s.Do(err)
	return out, in
}
