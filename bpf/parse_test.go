package bpf

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"
)

// said is a record without the fields that are equal in all records of a test.
type said struct {
	Kind Kind
	IP   netip.Addr
	MAC  [6]byte
	VLAN VLAN
}

func summary(records []Record) []said {
	var all []said
	for _, r := range records {
		all = append(all, said{r.Kind, r.IP, r.MAC, r.VLAN})
	}
	return all
}

func diff(want, got any) string {
	return cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty())
}

func data(ip string) []said             { return []said{{Kind: Data, IP: addr(ip), MAC: podMAC}} }
func dataVLAN(ip string, v VLAN) []said { return []said{{Data, addr(ip), podMAC, v}} }

type parseCase struct {
	name  string
	frame []byte
	want  []said
}

func parseCases() []parseCase {
	const global = "2001:db8::1"
	v4 := ipv4("10.0.0.1", 0)
	with := func(b []byte, at int, value byte) []byte {
		b = join(b)
		b[at] = value
		return b
	}
	udp6 := ipv6(global, udp, 64, udpHeader())
	probe := arp(1, otherMAC, "0.0.0.0", "10.0.0.9")

	cases := []parseCase{
		{"ipv4", frame(podMAC, typeIPv4, v4), data("10.0.0.1")},
		{"ipv4 with options", frame(podMAC, typeIPv4, ipv4("10.0.0.1", 40)), data("10.0.0.1")},
		{"ipv4 of header size 0", frame(podMAC, typeIPv4, with(v4, 0, 0x40)), nil},
		{"ipv4 of header size 16", frame(podMAC, typeIPv4, with(v4, 0, 0x44)), nil},
		{"ipv4 of version 6", frame(podMAC, typeIPv4, with(v4, 0, 0x65)), nil},
		{"ipv4 first fragment", frame(podMAC, typeIPv4, with(v4, 6, 0x20)), data("10.0.0.1")},
		{"ipv4 later fragment", frame(podMAC, typeIPv4, with(v4, 7, 0xb9)), data("10.0.0.1")},

		{"ipv6", frame(podMAC, typeIPv6, udp6), data(global)},
		{"ipv6 of version 4", frame(podMAC, typeIPv6, with(udp6, 0, 0x40)), nil},
		{"ipv6 fragment", frame(podMAC, typeIPv6, ipv6(global, fragment, 64, extension(udp, 8), udpHeader())), data(global)},
		{"ipv6 unknown next header", frame(podMAC, typeIPv6, ipv6(global, 253, 64)), data(global)},
		{"ipv6 high next header", frame(podMAC, typeIPv6, ipv6(global, 64+destOption, 255, extension(icmpv6, 8), neighbour(advertisement, 0, "2001:db8::9"))), data(global)},
		{"icmpv6 echo", frame(podMAC, typeIPv6, ipv6(global, icmpv6, 64, []byte{128, 0, 0, 0, 0, 0, 0, 0})), data(global)},
		{"icmpv6 echo, hop limit 255", frame(podMAC, typeIPv6, ipv6(global, icmpv6, 255, []byte{128, 0, 0, 0, 0, 0, 0, 0}, make([]byte, 40))), data(global)},

		{"one tag", frame(podMAC, typeIPv4, v4, [2]int{typeVLAN, 7}), dataVLAN("10.0.0.1", VLAN{Outer: 7})},
		{"one tag with priority", frame(podMAC, typeIPv4, v4, [2]int{typeVLAN, 0xf007}), dataVLAN("10.0.0.1", VLAN{Outer: 7})},
		{"one service tag", frame(podMAC, typeIPv6, udp6, [2]int{typeQinQ, 4094}), dataVLAN(global, VLAN{Outer: 4094})},
		{"two tags", frame(podMAC, typeIPv4, v4, [2]int{typeQinQ, 100}, [2]int{typeVLAN, 7}), dataVLAN("10.0.0.1", VLAN{100, 7})},
		{"two tags around arp", frame(podMAC, typeARP, arp(2, otherMAC, "10.0.0.1", "10.0.0.2"), [2]int{typeQinQ, 100}, [2]int{typeVLAN, 7}), []said{{Answer, addr("10.0.0.1"), otherMAC, VLAN{100, 7}}}},
		{"priority tag", frame(podMAC, typeIPv4, v4, [2]int{typeVLAN, 0xe000}), data("10.0.0.1")},
		{"priority tag outside", frame(podMAC, typeIPv4, v4, [2]int{typeQinQ, 0}, [2]int{typeVLAN, 7}), dataVLAN("10.0.0.1", VLAN{Outer: 7})},
		{"priority tag inside", frame(podMAC, typeIPv4, v4, [2]int{typeQinQ, 100}, [2]int{typeVLAN, 0}), dataVLAN("10.0.0.1", VLAN{Outer: 100})},
		{"three tags", frame(podMAC, typeIPv4, v4, [2]int{typeQinQ, 100}, [2]int{typeVLAN, 7}, [2]int{typeVLAN, 8}), nil},

		{"arp request", frame(podMAC, typeARP, arp(1, otherMAC, "10.0.0.1", "10.0.0.2")), []said{{Kind: Announced, IP: addr("10.0.0.1"), MAC: otherMAC}}},
		{"gratuitous arp request", frame(podMAC, typeARP, arp(1, podMAC, "10.0.0.1", "10.0.0.1")), []said{{Kind: Gratuitous, IP: addr("10.0.0.1"), MAC: podMAC}}},
		{"arp reply", frame(podMAC, typeARP, arp(2, otherMAC, "10.0.0.1", "10.0.0.2")), []said{{Kind: Answer, IP: addr("10.0.0.1"), MAC: otherMAC}}},
		{"gratuitous arp reply", frame(podMAC, typeARP, arp(2, podMAC, "10.0.0.1", "10.0.0.1")), []said{{Kind: Gratuitous, IP: addr("10.0.0.1"), MAC: podMAC}}},
		{"gratuitous arp of nothing", frame(podMAC, typeARP, arp(2, podMAC, "0.0.0.0", "0.0.0.0")), nil},
		{"arp reply to an rfc 5227 probe", frame(podMAC, typeARP, arp(2, podMAC, "10.0.0.1", "0.0.0.0")), []said{{Kind: Answer, IP: addr("10.0.0.1"), MAC: podMAC}}},
		{"arp probe", frame(podMAC, typeARP, probe), []said{{Kind: Tentative, IP: addr("10.0.0.9"), MAC: otherMAC}}},
		{"arp probe of nothing", frame(podMAC, typeARP, arp(1, podMAC, "0.0.0.0", "0.0.0.0")), nil},
		{"arp reply of nothing", frame(podMAC, typeARP, arp(2, podMAC, "0.0.0.0", "10.0.0.1")), nil},
		{"arp probe of hardware type ieee 802", frame(podMAC, typeARP, with(probe, 1, 6)), []said{{Kind: Tentative, IP: addr("10.0.0.9"), MAC: otherMAC}}},
		{"arp reply of hardware type ieee 802", frame(podMAC, typeARP, with(arp(2, otherMAC, "10.0.0.1", "10.0.0.2"), 1, 6)), []said{{Kind: Answer, IP: addr("10.0.0.1"), MAC: otherMAC}}},
		{"arp of another hardware", frame(podMAC, typeARP, with(probe, 1, 7)), nil},
		{"arp of another protocol", frame(podMAC, typeARP, with(probe, 2, 0x86)), nil},
		{"arp of another hardware size", frame(podMAC, typeARP, with(probe, 4, 8)), nil},
		{"arp of another protocol size", frame(podMAC, typeARP, with(probe, 5, 16)), nil},
		{"reverse arp request", frame(podMAC, typeARP, with(probe, 7, 3)), nil},
		{"arp padded", frame(podMAC, typeARP, join(probe, make([]byte, 18))), []said{{Kind: Tentative, IP: addr("10.0.0.9"), MAC: otherMAC}}},

		{"802.3 length", frame(podMAC, 46, make([]byte, 46)), nil},
		{"lldp", frame(podMAC, 0x88cc, make([]byte, 46)), nil},
	}
	for _, ip := range []string{
		"0.0.0.0", "0.1.2.3", "127.0.0.1", "127.255.255.255", "169.254.0.1", "169.254.255.255",
		"224.0.0.1", "239.1.2.3", "255.255.255.255",
	} {
		cases = append(cases,
			parseCase{"skipped as source " + ip, frame(podMAC, typeIPv4, ipv4(ip, 0)), nil},
			parseCase{"skipped as answer " + ip, frame(podMAC, typeARP, arp(2, podMAC, ip, "10.0.0.1")), nil})
		if ip != "0.0.0.0" {
			cases = append(cases,
				parseCase{"skipped as announced " + ip, frame(podMAC, typeARP, arp(1, podMAC, ip, "10.0.0.1")), nil},
				parseCase{"skipped as tentative " + ip, frame(podMAC, typeARP, arp(1, podMAC, "0.0.0.0", ip)), nil})
		}
	}
	for _, ip := range []string{
		"1.0.0.0", "126.255.255.255", "128.0.0.1", "169.253.255.255", "169.255.0.1", "223.255.255.255",
		"100.64.0.1", "192.168.0.1", "240.0.0.1", "255.255.255.254",
	} {
		cases = append(cases, parseCase{"counted " + ip, frame(podMAC, typeIPv4, ipv4(ip, 0)), data(ip)})
	}
	for _, ip := range []string{
		"::", "::1", "fe80::1", "febf:ffff::1", "ff02::1", "ff0e::1", "::ffff:10.0.0.1",
	} {
		cases = append(cases,
			parseCase{"skipped as source " + ip, frame(podMAC, typeIPv6, ipv6(ip, udp, 64, udpHeader())), nil},
			parseCase{"skipped as tagged source " + ip, frame(podMAC, typeIPv6, ipv6(ip, udp, 64, udpHeader()), [2]int{typeVLAN, 7}), nil},
			parseCase{"skipped as answer " + ip, frame(podMAC, typeIPv6, ipv6("fe80::2", icmpv6, 255, neighbour(advertisement, 0, ip))), nil},
			parseCase{"skipped as tentative " + ip, frame(podMAC, typeIPv6, ipv6To("ff02::1:ff00:1", "::", icmpv6, 255, neighbour(solicitation, 0, ip))), nil})
	}
	for _, ip := range []string{"::2", "::1:0:0", "fe7f::1", "fec0::1", "fc00::1", "fdff::1", "64:ff9b::a00:1", "a00:1::"} {
		cases = append(cases, parseCase{"counted " + ip, frame(podMAC, typeIPv6, ipv6(ip, udp, 64, udpHeader())), data(ip)})
	}
	return cases
}

// TestParse gives each packet to each program, with empty maps.
func TestParse(t *testing.T) {
	for _, mode := range []Mode{TC, XDP} {
		t.Run(string(mode), func(t *testing.T) {
			o := load(t, Options{Mode: mode, Constants: limits{AnswerRate: Rate{200, 1e5}}.constants()})
			for i, c := range append(parseCases(), ndpCases()...) {
				enter(t, o, loopback, uint32(i))
				run(t, o, loopback, c.frame)
				got := records(t, o)
				if diff := diff(c.want, summary(got)); diff != "" {
					t.Errorf("%s (-want +got)\n%s", c.name, diff)
				}
				for _, record := range got {
					if record.Ifindex != loopback || record.Generation != uint32(i) {
						t.Errorf("%s: interface %d generation %d, want %d and %d", c.name,
							record.Ifindex, record.Generation, loopback, i)
					}
				}
			}
		})
	}
}

// TestTruncated cuts packets at every byte. A cut packet may say less than the whole one, in the same
// order, but nothing else.
func TestTruncated(t *testing.T) {
	frames := []struct {
		frame []byte
		// needs is the number of bytes that each record needs.
		needs []int
		want  []said
	}{
		{ipv4Frame("10.0.0.1"), []int{34}, data("10.0.0.1")},
		{ipv6Frame("2001:db8::1"), []int{54}, data("2001:db8::1")},
		{
			frame(podMAC, typeIPv4, ipv4("10.0.0.1", 0), [2]int{typeQinQ, 100}, [2]int{typeVLAN, 7}),
			[]int{42},
			dataVLAN("10.0.0.1", VLAN{100, 7}),
		},
		{
			frame(podMAC, typeARP, arp(2, otherMAC, "10.0.0.1", "10.0.0.2")),
			[]int{42},
			[]said{{Kind: Answer, IP: addr("10.0.0.1"), MAC: otherMAC}},
		},
		{
			frame(podMAC, typeIPv6, ipv6("2001:db8::1", destOption, 255, extension(icmpv6, 16),
				neighbour(solicitation, 0, "2001:db8::9", linkOption(1)))),
			[]int{14 + 40 + 16 + 24 + 8, 54},
			[]said{
				{Kind: Announced, IP: addr("2001:db8::1"), MAC: podMAC},
				{Kind: Data, IP: addr("2001:db8::1"), MAC: podMAC},
			},
		},
		{
			frame(podMAC, typeIPv6, ipv6("2001:db8::1", icmpv6, 255, neighbour(solicited, 0, "2001:db8::9"))),
			[]int{14 + 40 + 24, 54},
			[]said{
				{Kind: Answer, IP: addr("2001:db8::9"), MAC: podMAC},
				{Kind: Data, IP: addr("2001:db8::1"), MAC: podMAC},
			},
		},
	}
	for _, mode := range []Mode{TC, XDP} {
		t.Run(string(mode), func(t *testing.T) {
			o := load(t, Options{Mode: mode})
			generation := uint32(0)
			for i, f := range frames {
				// The kernel takes no frame without a payload.
				for size := 15; size <= len(f.frame); size++ {
					generation++
					enter(t, o, loopback, generation)
					err := tryRun(t, o, loopback, f.frame[:size])
					if mode == TC && size < slices.Min(f.needs) && errors.Is(err, unix.EINVAL) {
						// Newer kernels make no skb of a cut IP header. XDP takes all.
						continue
					}
					if err != nil {
						t.Fatalf("frame %d cut to %d bytes: %v", i, size, err)
					}
					var want []said
					for j, needs := range f.needs {
						if size >= needs {
							want = append(want, f.want[j])
						}
					}
					if diff := diff(want, summary(records(t, o))); diff != "" {
						t.Errorf("frame %d cut to %d bytes (-want +got)\n%s", i, size, diff)
					}
				}
			}
		})
	}
}

// TestUnknownInterface: packets of an interface without an entry make no record.
func TestUnknownInterface(t *testing.T) {
	o := load(t, Options{Mode: TC})
	enter(t, o, loopback+1, 1)
	for _, c := range append(parseCases(), ndpCases()...) {
		run(t, o, loopback, c.frame)
	}
	if got := records(t, o); len(got) > 0 {
		t.Fatalf("recorded %v", got)
	}
}
