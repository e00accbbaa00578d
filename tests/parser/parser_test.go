// Package parser compares the observer's parser with another one: gopacket, read by the RFCs. It gives both
// the same frames, which are captured from real tools, built at random, and damaged.
//
// It is a package of this module and not of bpf, because gopacket would else be a dependency of the program
// for everybody who reads its go.mod.
package parser

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/tests/lab"
)

var (
	frames = flag.Int("frames", 50_000, "how many frames to compare in each mode")
	seed   = flag.Uint64("seed", 1, "for the random frames")
)

// said is what a packet says about an address: a record without what does not come from the packet.
type said struct {
	kind bpf.Kind
	ip   netip.Addr
	mac  [6]byte
	vlan bpf.VLAN
}

func (s said) String() string {
	return fmt.Sprintf("%v %v at %x in VLAN %d.%d", s.kind, s.ip, s.mac, s.vlan.Outer, s.vlan.Inner)
}

// TestCaptured compares what both parsers make of the frames that real tools sent.
func TestCaptured(t *testing.T) {
	eachMode(t, func(o *observer) {
		seen := o.compare(captured(t))
		// What tcpdump shows: a test of this test, in which no parser is compared with itself.
		for kind, want := range map[bpf.Kind]int{bpf.Announced: 7, bpf.Answer: 8, bpf.Tentative: 3, bpf.Gratuitous: 11, bpf.Data: 46} {
			if seen[kind] != want {
				t.Errorf("%d %v, want %d", seen[kind], kind, want)
			}
		}
	})
}

// TestRandom compares what both parsers make of frames that are random or damaged.
func TestRandom(t *testing.T) {
	began := time.Now()
	eachMode(t, func(o *observer) {
		random := &generator{rand.New(rand.NewPCG(*seed, 0)), captured(t)}
		seen := make(map[bpf.Kind]int)
		left := *frames
		if o.socket != 0 {
			left /= 10
		}
		for ; left > 0; left -= batch {
			all := make([][]byte, 0, batch)
			for range batch {
				all = append(all, random.frame())
			}
			for kind, n := range o.compare(all) {
				seen[kind] += n
			}
			if t.Failed() {
				return
			}
		}
		t.Logf("%v: %v", o.name, seen)
		// A generator that makes but nonsense compares nothing.
		for kind := bpf.Data; kind <= bpf.Gratuitous; kind++ {
			if seen[kind] < *frames/10_000 {
				t.Errorf("%v: only %d frames say %v", o.name, seen[kind], kind)
			}
		}
	})
	t.Logf("%d frames, %v", *frames, time.Since(began).Round(time.Millisecond))
}

// batch is how many frames are given to the observer before its records are read. They fit into its ring.
const batch = 1000

// eachMode compares in each way in which the program gets packets. A failure of one shows in all, so the
// first ends the test.
func eachMode(t *testing.T, compare func(*observer)) {
	l := lab.NewT(t)
	n := l.Node("")
	for _, name := range []string{"tc", "xdp", "veth"} {
		if !t.Failed() {
			compare(newObserver(l, n, name))
		}
	}
}

// compare gives frames to both parsers, reports the first few differences, and counts the records.
func (o *observer) compare(all [][]byte) (seen map[bpf.Kind]int) {
	o.Helper()
	seen = make(map[bpf.Kind]int)
	got := o.observe(all)
	for i, frame := range all {
		if got[i] == nil {
			continue // the kernel did not take it
		}
		want := reference(frame)
		for _, s := range want {
			seen[s.kind]++
		}
		if !slices.Equal(*got[i], want) {
			o.Errorf("%s: frame\n%x\nobserver:  %v\nreference: %v", o.name, frame, lines(*got[i]), lines(want))
			if o.differences++; o.differences >= 5 {
				return seen
			}
		}
	}
	return seen
}

func lines(all []said) string {
	var text []string
	for _, s := range all {
		text = append(text, s.String())
	}
	return strings.Join(text, ", ")
}

// captured are the frames of testdata.
func captured(t *testing.T) (all [][]byte) {
	t.Helper()
	file, err := os.Open("testdata/tools.pcap")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	reader, err := pcapgo.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	for {
		frame, _, err := reader.ReadPacketData()
		if err != nil {
			break
		}
		all = append(all, frame)
	}
	if len(all) < 50 {
		t.Fatalf("only %d frames", len(all))
	}
	return all
}
