package bpf

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestWatch: answers that are delivered to a watched interface are recorded, and nothing else.
func TestWatch(t *testing.T) {
	for _, mode := range []Mode{TC, XDP} {
		t.Run(string(mode), func(t *testing.T) {
			isolate(t)
			index, other := addVeth(t, "watched0"), addVeth(t, "watched1")
			up(t, "watched0p")
			up(t, "watched1p")
			o := load(t, Options{Mode: mode, SolicitMAC: [3]byte(us[:3])})
			enter(t, o, index, 1)
			enter(t, o, other, 2)
			to := func(to mac, b []byte) []byte {
				copy(b, to[:])
				return b
			}
			deliver := func(index int, frames ...[]byte) {
				t.Helper()
				for _, b := range frames {
					transmit(t, index, b)
				}
			}
			neighbourMAC := mac{2, 9, 9, 9, 9, 9}
			answer := to(us, frame(podMAC, typeARP, arp(2, podMAC, "10.0.0.1", "0.0.0.0")))
			deliver(index, answer)
			wantRecords(t, o, "before the watch")
			w, err := o.Watch(index)
			if err != nil {
				t.Fatal(err)
			}
			advertisement := frame(podMAC, typeIPv6, ipv6("2001:db8::1", icmpv6, 255, neighbour(solicited, 0, "2001:db8::1")))
			deliver(index,
				answer,
				to(neighbourMAC, frame(podMAC, typeARP, arp(2, neighbourMAC, "10.0.0.2", "10.0.0.9"))),
				to(us, advertisement),
				frame(podMAC, typeARP, arp(1, podMAC, "10.0.0.4", "10.0.0.4")),
				// What is no answer, and what another interface gets.
				frame(podMAC, typeARP, arp(1, podMAC, "10.0.0.3", "10.0.0.9")),
				frame(podMAC, typeIPv6, ipv6("fe80::1", icmpv6, 255, neighbour(solicitation, 0, "2001:db8::1"))),
				ipv6Frame("2001:db8::1"),
				frame(podMAC, typeARP, []byte{0, 1}),
			)
			deliver(other, answer)
			got := records(t, o)
			want := []Record{
				{Address: Address{Ifindex: uint32(index), Generation: 1, IP: addr("10.0.0.1")}, Kind: Delivered, MAC: podMAC, To: us},
				{Address: Address{Ifindex: uint32(index), Generation: 1, IP: addr("10.0.0.2")}, Kind: Delivered, MAC: neighbourMAC, To: neighbourMAC},
				{Address: Address{Ifindex: uint32(index), Generation: 1, IP: addr("2001:db8::1")}, Kind: Delivered, MAC: podMAC, To: us},
				{Address: Address{Ifindex: uint32(index), Generation: 1, IP: addr("10.0.0.4")}, Kind: Delivered, MAC: podMAC, To: broadcast},
			}
			for i := range got {
				if got[i].Time == 0 {
					t.Error("a record has no time")
				}
				got[i].Time = 0
			}
			if diff := diff(want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
			deliver(index, answer)
			wantRecords(t, o, "after the watch")
			if _, err := o.Watch(1 << 20); !errors.Is(err, unix.ENODEV) {
				t.Errorf("no interface: %v", err)
			}
			if err := o.Close(); err != nil {
				t.Error(err)
			}
			if _, err := o.Watch(index); !errors.Is(err, os.ErrClosed) {
				t.Errorf("after Close: %v", err)
			}
		})
	}
}

// transmit sends a frame by an interface, as a bridge does.
func transmit(t *testing.T, ifindex int, b []byte) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, b, 0, &unix.SockaddrLinklayer{Ifindex: ifindex, Protocol: uint16(b[12]) | uint16(b[13])<<8}); err != nil {
		t.Fatal(err)
	}
}
