package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// readerCommand makes this program the packet reader instead of the benchmark: a process of
// its own, so that its CPU time is its own.
const readerCommand = "packet-reader"

func readerAsked() bool { return len(os.Args) > 1 && os.Args[1] == readerCommand }

// readerCounts is what the reader answers to each line of its input.
type readerCounts struct {
	// Seen frames were read, Lost ones found its sockets full.
	Seen, Lost uint64
}

// packetReader is what one would write without BPF: a packet socket on each device, a system
// call for each frame, the source address into a map. It reads no more of a frame than the
// headers and sees what comes in only, as the observer does. It ends with its input.
func packetReader(devices []string, in io.Reader, out io.Writer) int {
	var sockets []int
	seen := new(atomic.Uint64)
	for _, device := range devices {
		fd, err := packetSocket(device)
		if err != nil {
			fmt.Fprintf(os.Stderr, "packet reader: %s: %v\n", device, err)
			return 1
		}
		sockets = append(sockets, fd)
		go readFrames(fd, seen)
	}
	answers := json.NewEncoder(out)
	var lost uint64
	for lines := bufio.NewScanner(in); lines.Scan(); {
		for _, fd := range sockets {
			// Reading the drops sets them back (packet(7)).
			stats, err := packetStats(fd)
			if err != nil {
				fmt.Fprintln(os.Stderr, "packet reader:", err)
				return 1
			}
			lost += uint64(stats.Drops)
		}
		if answers.Encode(readerCounts{Seen: seen.Load(), Lost: lost}) != nil {
			return 1
		}
	}
	return 0
}

// packetSocket opens a socket for the frames that come in at a device.
func packetSocket(device string) (int, error) {
	ifi, err := net.InterfaceByName(device)
	if err != nil {
		return 0, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
	for _, err := range []error{
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: ifi.Index}),
	} {
		if err != nil {
			return 0, err
		}
	}
	return fd, nil
}

// packetStats reads PACKET_STATISTICS.
func packetStats(fd int) (stats unix.TpacketStats, err error) {
	size := uint32(unsafe.Sizeof(stats))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_PACKET, unix.PACKET_STATISTICS,
		uintptr(unsafe.Pointer(&stats)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return stats, fmt.Errorf("read packet statistics: %w", errno)
	}
	return stats, nil
}

func readFrames(fd int, seen *atomic.Uint64) {
	lastSeen := make(map[netip.Addr]time.Time)
	frame := make([]byte, 128)
	for {
		size, err := unix.Read(fd, frame)
		if err != nil {
			continue // the device went down, or a signal came
		}
		seen.Add(1)
		if source, ok := sourceOf(frame[:size]); ok {
			lastSeen[source] = time.Now()
		}
	}
}

// sourceOf returns the source of an IP packet, or the sender of an ARP packet.
func sourceOf(frame []byte) (netip.Addr, bool) {
	if len(frame) < 14 {
		return netip.Addr{}, false
	}
	switch etherType, packet := binary.BigEndian.Uint16(frame[12:]), frame[14:]; {
	case etherType == unix.ETH_P_IP && len(packet) >= 20:
		return netip.AddrFrom4([4]byte(packet[12:])), true
	case etherType == unix.ETH_P_ARP && len(packet) >= 28:
		return netip.AddrFrom4([4]byte(packet[14:])), true
	case etherType == unix.ETH_P_IPV6 && len(packet) >= 40:
		return netip.AddrFrom16([16]byte(packet[8:])), true
	}
	return netip.Addr{}, false
}
