package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/lab"
)

const (
	tcpPort, udpPort = 5001, 5002
	chunk            = 1 << 20
)

// sending is what came of sending for a while.
type sending struct {
	// arrived are bytes or packets.
	arrived int64
	took    time.Duration
	// cpu is the time of the sending thread, where that says something.
	cpu time.Duration
}

// sendTCP sends one TCP stream for this long. Neither end copies a byte, so that the way
// between them is what is measured: the sender sends the pages of a file, the receiver throws
// away what it is told of.
func sendTCP(ctx context.Context, from, to *lab.Pod, d time.Duration) (s sending, err error) {
	out, in, err := connect(from, to)
	if err != nil {
		return s, err
	}
	file, err := unix.MemfdCreate("dupip-bench", unix.MFD_CLOEXEC)
	if err == nil {
		defer unix.Close(file)
		_, err = unix.Write(file, make([]byte, chunk))
	}
	if err != nil {
		return s, errors.Join(err, unix.Close(out), unix.Close(in))
	}

	sent := make(chan error, 1)
	began := time.Now()
	go func() {
		defer unix.Shutdown(out, unix.SHUT_RDWR)
		for { // once at least, however late it is
			var offset int64
			if _, err := unix.Sendfile(out, file, &offset, chunk); err != nil && !errors.Is(err, unix.EINTR) {
				sent <- fmt.Errorf("send: %w", err)
				return
			}
			if time.Since(began) >= d || ctx.Err() != nil {
				break
			}
		}
		sent <- ctx.Err()
	}()
	// The end of ctx ends calls that wait; the sockets stay open until that is over.
	shut := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(shut)
		_ = errors.Join(unix.Shutdown(in, unix.SHUT_RDWR), unix.Shutdown(out, unix.SHUT_RDWR))
	})
	defer func() {
		if !stop() {
			<-shut
		}
		err = errors.Join(err, <-sent, unix.Close(in), unix.Close(out))
	}()
	buf := make([]byte, chunk)
	for {
		// For TCP the flag means: do not copy (tcp(7)).
		size, _, err := unix.Recvfrom(in, buf, unix.MSG_TRUNC)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return s, errors.Join(fmt.Errorf("receive: %w", err), unix.Shutdown(in, unix.SHUT_RDWR))
		}
		if size == 0 {
			s.took = time.Since(began)
			return s, nil
		}
		s.arrived += int64(size)
	}
}

// connect makes a TCP connection of blocking sockets: a goroutine that waits in the poller
// wakes up later than one in a system call.
func connect(from, to *lab.Pod) (out, in int, err error) {
	address := unix.SockaddrInet4{Port: tcpPort, Addr: to.Addrs()[0].As4()}
	var listener int
	if err := to.Exec(func() (err error) {
		listener, err = tcpSocket()
		return err
	}); err != nil {
		return 0, 0, fmt.Errorf("open a socket in the receiving pod: %w", err)
	}
	defer unix.Close(listener)
	if err := errors.Join(
		unix.SetsockoptInt(listener, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.Bind(listener, &address),
		unix.Listen(listener, 1),
	); err != nil {
		return 0, 0, fmt.Errorf("listen in the receiving pod: %w", err)
	}
	if err := from.Exec(func() (err error) {
		out, err = tcpSocket()
		return err
	}); err != nil {
		return 0, 0, fmt.Errorf("open a socket in the sending pod: %w", err)
	}
	if err := unix.Connect(out, &address); err != nil {
		return 0, 0, errors.Join(fmt.Errorf("connect to the receiving pod: %w", err), unix.Close(out))
	}
	in, _, err = unix.Accept4(listener, unix.SOCK_CLOEXEC)
	if err != nil {
		return 0, 0, errors.Join(fmt.Errorf("accept in the receiving pod: %w", err), unix.Close(out))
	}
	return out, in, nil
}

// tcpSocket opens a socket that gives up when nothing moves for a while.
func tcpSocket() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	patience := unix.Timeval{Sec: 5}
	if err := errors.Join(
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &patience),
	); err != nil {
		return 0, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// sendUDP sends the smallest datagrams for this long. Nobody reads them: they end at a full
// socket, for nothing but the way to be measured. The sending thread carries each packet all
// the way by itself, so its CPU time is what the way costs.
func sendUDP(ctx context.Context, from, to *lab.Pod, d time.Duration) (s sending, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	target := netip.AddrPortFrom(to.Addrs()[0], udpPort)
	sink, err := to.ListenUDP(target)
	if err != nil {
		return s, err
	}
	defer sink.Close()
	conn, err := from.DialUDP(from.Addrs()[0], target)
	if err != nil {
		return s, err
	}
	defer conn.Close()
	batch := make([]ipv4.Message, 64)
	payload := make([]byte, 18) // a frame of 60 bytes
	for i := range batch {
		batch[i].Buffers = [][]byte{payload}
	}
	before, err := datagrams(to)
	if err != nil {
		return s, err
	}
	began, cpu := time.Now(), threadTime()
	for packets := ipv4.NewPacketConn(conn); ; {
		if _, err := packets.WriteBatch(batch, 0); err != nil {
			return s, fmt.Errorf("send: %w", err)
		}
		if time.Since(began) >= d || ctx.Err() != nil {
			break
		}
	}
	s.took, s.cpu = time.Since(began), threadTime()-cpu
	after, err := datagrams(to)
	s.arrived = after - before
	return s, errors.Join(err, ctx.Err())
}

// datagrams counts the UDP datagrams that a pod has received, those that found a full socket
// among them.
func datagrams(p *lab.Pod) (count int64, err error) {
	err = p.Exec(func() error {
		text, err := os.ReadFile("/proc/thread-self/net/snmp")
		if err != nil {
			return err
		}
		var names []string
		for line := range strings.Lines(string(text)) {
			values, isUDP := strings.CutPrefix(line, "Udp: ")
			if !isUDP {
				continue
			}
			if names == nil {
				names = strings.Fields(values)
				continue
			}
			for i, value := range strings.Fields(values) {
				if i < len(names) && (names[i] == "InDatagrams" || names[i] == "InErrors") {
					n, err := strconv.ParseInt(value, 10, 64)
					if err != nil {
						return err
					}
					count += n
				}
			}
			return nil
		}
		return errors.New("no counters of UDP")
	})
	if err != nil {
		return 0, fmt.Errorf("count the datagrams of netns %s: %w", p.Name, err)
	}
	return count, nil
}
