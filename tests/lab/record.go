package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Datagram is a UDP datagram over IPv4.
type Datagram struct {
	From, To netip.AddrPort
	Payload  []byte
}

// Recording is what goes over the switch.
type Recording struct {
	socket *packetSocket
	done   chan struct{}

	mu        sync.Mutex
	datagrams []Datagram
}

// Record starts to write down the datagrams to a port that go over the switch, the first
// limit of them. The lab ends it.
func (l *Lab) Record(port uint16, limit int) (*Recording, error) {
	r := &Recording{done: make(chan struct{})}
	if err := l.hub.Exec(func() (err error) {
		r.socket, err = openAllPackets()
		return err
	}); err != nil {
		return nil, fmt.Errorf("record at the switch: %w", err)
	}
	go func() {
		defer close(r.done)
		buf := make([]byte, 65536)
		for {
			frame, own, err := r.socket.receive(buf, time.Time{})
			if errors.Is(err, unix.ENETDOWN) {
				continue
			}
			if err != nil {
				return
			}
			// What comes in at one port goes out at another, and counts once.
			if d, ok := readDatagram(frame); ok && !own && d.To.Port() == port {
				r.add(d, limit)
			}
		}
	}()
	l.OnClose(r.Close)
	return r, nil
}

func (r *Recording) add(d Datagram, limit int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.datagrams) < limit {
		d.Payload = slices.Clone(d.Payload)
		r.datagrams = append(r.datagrams, d)
	}
}

// Datagrams are those so far.
func (r *Recording) Datagrams() []Datagram {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.datagrams)
}

// Close ends the recording. It may be called more than once.
func (r *Recording) Close() error {
	err := r.socket.close()
	<-r.done
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// readDatagram reads a frame with an unfragmented UDP datagram over IPv4.
func readDatagram(frame []byte) (d Datagram, ok bool) {
	const ethernet, ip, udp = 14, 20, 8
	if len(frame) < ethernet+ip+udp || binary.BigEndian.Uint16(frame[12:]) != etherIPv4 {
		return d, false
	}
	p := frame[ethernet:]
	if p[0] != 0x45 || p[9] != unix.IPPROTO_UDP || binary.BigEndian.Uint16(p[6:])&0x3fff != 0 {
		return d, false
	}
	size := int(binary.BigEndian.Uint16(p[24:]))
	if size < udp || ip+size > len(p) {
		return d, false
	}
	d.From = netip.AddrPortFrom(netip.AddrFrom4([4]byte(p[12:16])), binary.BigEndian.Uint16(p[20:]))
	d.To = netip.AddrPortFrom(netip.AddrFrom4([4]byte(p[16:20])), binary.BigEndian.Uint16(p[22:]))
	d.Payload = p[ip+udp : ip+size]
	return d, true
}
