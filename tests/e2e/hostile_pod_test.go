package e2e

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/lab"
)

func mebibytes(bytes int) string { return fmt.Sprintf("%.0f MiB", float64(bytes)/(1<<20)) }

// addressMessage is an RTM_NEWADDR or RTM_DELADDR without acknowledgement.
func addressMessage(kind int, index int, ip netip.Addr) []byte {
	flags := 0
	if kind == unix.RTM_NEWADDR {
		flags = unix.NLM_F_CREATE | unix.NLM_F_EXCL
	}
	r := nl.NewNetlinkRequest(kind, flags)
	family := unix.AF_INET
	if ip.Is6() {
		family = unix.AF_INET6
	}
	head := nl.NewIfAddrmsg(family)
	head.Prefixlen, head.Flags, head.Index = uint8(ip.BitLen()), unix.IFA_F_NODAD, uint32(index)
	r.AddData(head)
	r.AddData(nl.NewRtAttr(unix.IFA_LOCAL, ip.AsSlice()))
	return r.Serialize()
}

// netlinkIn opens a netlink socket inside a pod that does not care for errors.
func netlinkIn(p *lab.Pod) (fd int, err error) {
	err = p.Exec(func() error {
		fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
		return err
	})
	return fd, err
}

// addAddrs gives a device of the pod so many IPv6 addresses.
func addAddrs(p *lab.Pod, device string, count int) error {
	index, err := p.Ifindex(device)
	if err != nil {
		return err
	}
	fd, err := netlinkIn(p)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	numbers := make([]int, count)
	for n := range numbers {
		numbers[n] = n
	}
	for chunk := range slices.Chunk(numbers, 300) {
		var messages []byte
		for _, n := range chunk {
			ip := [16]byte{0: 0xfd, 1: 0xbb}
			binary.BigEndian.PutUint32(ip[12:], uint32(n+1))
			messages = append(messages, addressMessage(unix.RTM_NEWADDR, index, netip.AddrFrom16(ip))...)
		}
		if err := unix.Sendto(fd, messages, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return fmt.Errorf("add addresses to %s: %w", device, err)
		}
	}
	return nil
}

// flood is something that a pod does in a loop; count is how often it did.
type flood struct {
	count atomic.Int64
	stop  context.CancelFunc
	done  chan error
}

// startFlood runs f again and again until stopped; it returns how often it did the thing.
func startFlood(t *lab.T, f func() (int, error)) *flood {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	fl := &flood{stop: cancel, done: make(chan error, 1)}
	go func() {
		for ctx.Err() == nil {
			n, err := f()
			fl.count.Add(int64(n))
			if err != nil {
				fl.done <- err
				return
			}
		}
		fl.done <- nil
	}()
	t.OnClose(func() error {
		cancel()
		err := <-fl.done
		fl.done <- err
		return nil
	})
	return fl
}

// end stops the flood and fails the test if it had ended by itself.
func (f *flood) end(t *lab.T) {
	t.Helper()
	f.stop()
	err := <-f.done
	f.done <- err
	t.Do(err)
}

// floodAddresses adds and removes one address of the pod as fast as the kernel can.
func floodAddresses(t *lab.T, p *lab.Pod, device string, ip netip.Addr) *flood {
	t.Helper()
	index, err := p.Ifindex(device)
	t.Do(err)
	fd, err := netlinkIn(p)
	t.Do(err)
	t.OnClose(func() error { return unix.Close(fd) })
	const pairs = 50
	messages := slices.Concat(
		addressMessage(unix.RTM_NEWADDR, index, ip), addressMessage(unix.RTM_DELADDR, index, ip))
	messages = slices.Repeat(messages, pairs)
	return startFlood(t, func() (int, error) {
		err := unix.Sendto(fd, messages, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		if errors.Is(err, unix.ENOBUFS) {
			err = nil
		}
		return 2 * pairs, err
	})
}

// floodFrames sends frames out of the pod's first interface, so many a second, each made
// by next from its number.
func floodFrames(t *lab.T, p *lab.Pod, perSecond int, next func(number int) []byte) *flood {
	t.Helper()
	index, err := p.Ifindex(p.Interface)
	t.Do(err)
	var fd int
	t.Do(p.Exec(func() error {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return errors.Join(unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: index}),
			unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1))
	}))
	t.OnClose(func() error { return unix.Close(fd) })
	const slice = 5 * time.Millisecond
	portion := max(1, perSecond*int(slice)/int(time.Second))
	number, due := 0, time.Now()
	return startFlood(t, func() (int, error) {
		for n := range portion {
			frame := next(number)
			number++
			if _, err := unix.Write(fd, frame); err != nil && !errors.Is(err, unix.ENOBUFS) {
				return n, fmt.Errorf("send a frame from %s: %w", p.ShortName(), err)
			}
		}
		// What a busy machine held up is not made up for all at once.
		due = due.Add(slice)
		if late := time.Since(due); late > 10*slice {
			due = time.Now()
		}
		time.Sleep(time.Until(due))
		return portion, nil
	})
}
