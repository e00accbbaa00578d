package wire

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// many returns requests for probes of one pod, about so many addresses.
func many(n int) (list []Message) {
	for i := range n {
		key := detector.Key{Network: "default", IP: v4.IP}
		for range i {
			key.IP = key.IP.Next()
		}
		list = append(list, ProbeRequest{
			ID: uint64(i + 1), Key: key, Holder: detector.HolderID{Node: ourNode, Netns: 7}, Others: []cluster.Binding{binding(otherNode)},
		})
	}
	return list
}

// A receiver that reads packed packets gets all messages in a fraction of the packets, and the same as any other one.
func TestPackets(t *testing.T) {
	read := make(map[bool][]ProbeRequest)
	bytes := make(map[bool]int)
	for _, packs := range []bool{false, true} {
		var packets [][]byte
		b := Builder{Packs: packs}
		for _, m := range many(200) {
			k, encoded := Encode(m, noon)
			if !b.Add(k, encoded) {
				packets = append(packets, b.Packets()...)
				b = Builder{Packs: packs}
				b.Add(k, encoded)
			}
		}
		for _, packet := range append(packets, b.Packets()...) {
			p, invalid, unknown, err := Decode(packet, otherNode, noon)
			if err != nil || invalid != 0 || unknown || len(packet) > MaxPacket {
				t.Fatalf("%d bytes, %d invalid, %v", len(packet), invalid, err)
			}
			bytes[packs] += len(packet)
			read[packs] = append(read[packs], p.Requests...)
		}
	}
	if diff := cmp.Diff(read[false], read[true], compare); diff != "" || len(read[true]) != 200 {
		t.Errorf("%d messages (-plain +packed)\n%s", len(read[true]), diff)
	}
	if bytes[true] > bytes[false]/5 {
		t.Errorf("%d bytes, packed %d, want a fifth", bytes[false], bytes[true])
	}
}

// What cannot be packed well is in several packets, each small enough.
func TestPacketsThatPackBadly(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	b := Builder{Packs: true}
	n := 0
	for {
		report := Report{Seq: uint64(n), Conflict: make([]byte, 100+n)}
		for i := range report.Conflict {
			report.Conflict[i] = byte(r.Uint32())
		}
		if !b.Add(Encode(report, noon)) {
			break
		}
		n++
	}
	packets, got := b.Packets(), 0
	for _, packet := range packets {
		p, _, _, err := Decode(packet, otherNode, noon)
		if err != nil || len(packet) > MaxPacket {
			t.Fatalf("%d bytes, %v", len(packet), err)
		}
		got += len(p.Reports)
	}
	if got != n || len(packets) < maxUnpacked/MaxPacket {
		t.Errorf("%d of %d messages in %d packets", got, n, len(packets))
	}
}

// Of what a packet unpacks to there is a bound, whatever it says.
func TestUnpackIsBounded(t *testing.T) {
	for _, tt := range []struct {
		size int
		want error
	}{{maxUnpacked, nil}, {maxUnpacked + 1, ErrMalformed}, {1 << 24, ErrMalformed}} {
		got, err := unpack(pack(make([]byte, tt.size)))
		if !errors.Is(err, tt.want) || err == nil && len(got) != tt.size {
			t.Errorf("%d bytes: unpacked %d, %v", tt.size, len(got), err)
		}
	}
	whole := pack(bytes.Repeat([]byte("abc"), 500))
	for n := range len(whole) - 1 {
		if _, err := unpack(whole[:n+1]); !errors.Is(err, ErrMalformed) {
			t.Errorf("the first %d bytes of %d: %v", n+1, len(whole), err)
		}
	}
}

func BenchmarkPack(b *testing.B) {
	for _, packs := range []bool{false, true} {
		b.Run(fmt.Sprint("packs=", packs), func(b *testing.B) {
			builder := Builder{Packs: packs}
			for _, m := range many(40) {
				builder.Add(Encode(m, noon))
			}
			for b.Loop() {
				for _, packet := range builder.Packets() {
					if _, _, _, err := Decode(packet, otherNode, noon); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(builder.Counts[KindRequest]), "messages")
		})
	}
}
