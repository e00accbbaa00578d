package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"testing"
	"time"
)

// encode is the reverse of decode.
func (f Frame) encode(tag uint32) []byte {
	b := make([]byte, frameHeader)
	binary.LittleEndian.PutUint64(b, uint64(f.Time))
	ip := f.IP.As16()
	copy(b[8:], ip[:])
	binary.LittleEndian.PutUint32(b[24:], f.Ifindex)
	binary.LittleEndian.PutUint32(b[28:], f.Generation)
	binary.LittleEndian.PutUint16(b[32:], f.VLAN.Outer)
	binary.LittleEndian.PutUint16(b[34:], f.VLAN.Inner)
	binary.LittleEndian.PutUint32(b[40:], uint32(f.Length))
	binary.LittleEndian.PutUint32(b[44:], uint32(len(f.Data)))
	binary.LittleEndian.PutUint32(b[48:], tag)
	binary.LittleEndian.PutUint32(b[52:], uint32(f.Kind))
	return append(b, f.Data...)
}

func sampleFrame(data []byte) Frame {
	return Frame{
		Address: Address{Ifindex: 1 << 20, Generation: 1 << 31, IP: addr("2001:db8::1"), VLAN: VLAN{4094, 7}},
		Time:    3 * time.Hour, Kind: OtherAnswer, Length: 1000, Data: data,
	}
}

func TestDecodeFrame(t *testing.T) {
	arp := frame(podMAC, typeARP, arp(2, podMAC, "10.0.0.1", "10.0.0.9"))
	want := sampleFrame(arp)
	var got Frame
	if err := got.decode(want.encode(0)); err != nil || diff(want, got) != "" {
		t.Errorf("%v (-want +got)\n%s", err, diff(want, got))
	}
	tagged := want
	tagged.Data, tagged.Length = join(arp[:12], be16(typeVLAN), be16(0x2007), arp[12:]), 1004
	if err := got.decode(want.encode(0x0081<<16 | 0x2007)); err != nil || diff(tagged, got) != "" {
		t.Errorf("with a tag: %v (-want +got)\n%s", err, diff(tagged, got))
	}
	invalid := map[string][]byte{
		"short":          want.encode(0)[:frameHeader-1],
		"fewer captured": want.encode(0)[:frameHeader+len(arp)-1],
		"a kind":         sampleFrame(nil).encode(0),
	}
	invalid["a kind"][52] = byte(FrameKinds)
	for name, b := range invalid {
		if err := got.decode(b); !errors.Is(err, errBadRecord) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDecodeKeepsHeaders: what pods say to each other is not in memory, as it would be in the rest of a longer array.
func TestDecodeKeepsHeaders(t *testing.T) {
	const times = 1000
	b := sampleFrame(join(ipv4Frame("10.0.0.1"), make([]byte, 4000))).encode(0)
	var before, after runtime.MemStats
	var f Frame
	runtime.ReadMemStats(&before)
	for range times {
		if err := f.decode(b); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / times; each > 200 || len(f.Data) != 34 && len(f.Data) != 42 {
		t.Errorf("%d bytes for each frame, of which %d are headers", each, len(f.Data))
	}
}

func TestHeaders(t *testing.T) {
	with := func(b []byte, at int, value ...byte) []byte {
		b = join(b)
		copy(b[at:], value)
		return b
	}
	in4 := func(packet []byte) []byte { return frame(podMAC, typeIPv4, packet) }
	in6 := func(packet []byte) []byte { return frame(podMAC, typeIPv6, packet) }
	v4 := ipv4("10.0.0.1", 0)
	long := bytes.Repeat([]byte{0xff}, 200)
	tcp := func(words byte) []byte { return join(make([]byte, 12), []byte{words << 4}, long) }
	redirect := join([]byte{137, 0, 0, 0}, make([]byte, 36), []byte{4, 10}, long)
	solicit := neighbour(solicitation, 0, "2001:db8::9", linkOption(1))
	for name, c := range map[string]struct {
		frame []byte
		want  int
	}{
		"nothing":                    {nil, 0},
		"less than Ethernet":         {make([]byte, 13), 13},
		"another type":               {frame(podMAC, 0x1234, long), 14},
		"a length":                   {frame(podMAC, 100, long), 14},
		"arp with a tail":            {join(frame(podMAC, typeARP, arp(2, podMAC, "10.0.0.1", "10.0.0.9")), long), 42},
		"arp cut":                    {frame(podMAC, typeARP, make([]byte, 20)), 34},
		"tags without end":           {frame(podMAC, typeVLAN, bytes.Repeat([]byte{0x81, 0}, 200)), maxHeaders},
		"udp":                        {in4(join(v4, long)), 42},
		"icmp":                       {in4(join(with(v4, 9, 1), long)), 42},
		"sctp":                       {in4(join(with(v4, 9, 132), long)), 46},
		"esp":                        {in4(join(with(v4, 9, 50), long)), 34},
		"ip in ip":                   {in4(join(with(v4, 9, 4), long)), 34},
		"tcp":                        {in4(join(with(v4, 9, 6)[:20], tcp(5))), 54},
		"tcp with options":           {in4(join(with(v4, 9, 6)[:20], tcp(15))), 94},
		"tcp of 0 words":             {in4(join(with(v4, 9, 6)[:20], tcp(0))), 54},
		"tcp with options, tagged":   {frame(podMAC, typeIPv4, join(with(v4, 9, 6)[:20], tcp(15)), [2]int{typeVLAN, 7}), maxHeaders},
		"a later fragment":           {in4(join(with(v4, 6, 0, 1), long)), 34},
		"a first fragment":           {in4(join(with(v4, 6, 0x20, 0), long)), 42},
		"header size 0":              {in4(join(with(v4, 0, 0x40), long)), 42},
		"ipv4 cut":                   {in4(v4[:19]), 33},
		"ipv6 cut":                   {in6(ipv6(global, udp, 64)[:39]), 53},
		"udp in ipv6":                {in6(ipv6(global, udp, 64, udpHeader(), long)), 62},
		"behind extensions":          {in6(ipv6(global, hopByHop, 64, extension(destOption, 8), extension(udp, 16), udpHeader(), long)), 86},
		"long extensions":            {in6(ipv6(global, hopByHop, 64, extension(udp, 160), udpHeader(), long)), maxHeaders},
		"a later fragment in ipv6":   {in6(ipv6(global, fragment, 64, []byte{udp, 0, 0, 8, 0, 0, 0, 0}, long)), 62},
		"a first fragment in ipv6":   {in6(ipv6(global, fragment, 64, []byte{udp, 0, 0, 1, 0, 0, 0, 0}, udpHeader(), long)), 70},
		"no next header":             {in6(ipv6(global, 59, 64, long)), 54},
		"echo":                       {in6(ipv6(global, icmpv6, 64, []byte{128, 0, 0, 0, 0, 0, 0, 0}, long)), 62},
		"redirect, with a packet":    {in6(ipv6(global, icmpv6, 255, redirect)), 62},
		"solicitation":               {in6(ipv6(global, icmpv6, 255, solicit)), 14 + 40 + len(solicit)},
		"solicitation with a tail":   {join(in6(ipv6(global, icmpv6, 255, solicit)), long), 14 + 40 + len(solicit)},
		"solicitation of 0 bytes":    {in6(ofSize(-len(solicit), ipv6(global, icmpv6, 255, solicit))), 62},
		"solicitation cut":           {in6(ofSize(500, ipv6(global, icmpv6, 255, solicit))), 14 + 40 + len(solicit)},
		"an advertisement in a VLAN": {frame(podMAC, typeIPv6, ipv6(global, icmpv6, 255, neighbour(solicited, 0, asked)), [2]int{typeVLAN, 7}), 18 + 40 + 24},
	} {
		if got := headers(c.frame); got != c.want {
			t.Errorf("%s: %d bytes, want %d", name, got, c.want)
		}
	}
}

// FuzzHeaders: what is kept is within the frame and its bound, and does not depend on what is not kept.
func FuzzHeaders(f *testing.F) {
	for _, c := range append(parseCases(), ndpCases()...) {
		f.Add(c.frame, byte(0))
	}
	f.Fuzz(func(t *testing.T, b []byte, other byte) {
		n := headers(b)
		if n < 0 || n > len(b) || n > maxHeaders && !isWhole(b) {
			t.Fatalf("%d of %d bytes are kept of %x", n, len(b), b)
		}
		changed := bytes.Clone(b)
		for i := n; i < len(b); i++ {
			changed[i] += other
		}
		// Where a header ends may be the first byte that is not kept only if the bound has cut it.
		if got := headers(changed); got != n && n != maxHeaders {
			t.Fatalf("%d bytes are kept of %x, and %d of %x", n, b, got, changed)
		}
	})
}

// isWhole reports whether a frame may be an ARP or NDP packet, in any number of VLANs.
func isWhole(b []byte) bool {
	at := 12
	for len(b) >= at+6 && (b[at] == 0x81 && b[at+1] == 0 || b[at] == 0x88 && b[at+1] == 0xa8) {
		at += 4
	}
	arp, v6 := len(b) >= at+2 && b[at] == 8 && b[at+1] == 6, len(b) >= at+2 && b[at] == 0x86 && b[at+1] == 0xdd
	return arp || v6 && bytes.ContainsAny(b[at:], "\x87\x88")
}
