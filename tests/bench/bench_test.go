package main

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/dupip/dupip/internal/needs"
	"github.com/dupip/dupip/tests/lab"
)

func TestMain(m *testing.M) {
	if readerAsked() {
		os.Exit(packetReader(os.Args[2:], os.Stdin, os.Stdout))
	}
	os.Exit(lab.Main(m))
}

// tiny is enough to see that everything is measured.
var tiny = settings{
	rounds: 1, repeat: 2000, runs: 1, tcp: 50 * time.Millisecond, udp: 20 * time.Millisecond,
	batches: 1, bursts: 1, announcing: 2,
	pods: []int{1, 2}, idle: 50 * time.Millisecond, talk: 50 * time.Millisecond,
	waves: 1, wave: 2, sandboxes: 4, turns: 4,
}

// The whole benchmark in miniature: no figure counts, but that there is each of them, and
// that the table fits a terminal.
func TestEverySection(t *testing.T) {
	needs.Root(t)
	var blocks []block
	for _, s := range sections {
		t.Run(s.name, func(t *testing.T) {
			if s.name == "traffic" {
				l := lab.NewT(t)
				// make test does without arpwatch.
				ways := slices.DeleteFunc(slices.Clone(watchings), func(w watching) bool { return w.what == "arpwatch" })
				found, err := compareTraffic(t.Context(), l.Lab, tiny, ways)
				l.Do(err)
				blocks = append(blocks, found...)
				return
			}
			found, err := s.run(t.Context(), tiny)
			if err != nil {
				t.Fatal(err)
			}
			blocks = append(blocks, found...)
		})
	}
	text := render(header(time.Minute), blocks)
	fits(t, render(nil, blocks)) // how long the names of a kernel and a processor are is not ours
	var got []string
	for _, b := range blocks {
		for _, r := range b.rows {
			if r.figure == "" {
				t.Errorf("%s: no figure", r.what)
			}
			got = append(got, r.what)
		}
	}
	for _, want := range []string{
		"empty program", "256 IPv6 addresses in turns", "unobserved", "dupip, tcx", "dupip, tc", "dupip, xdp",
		"packet reader", "from the ring, bpf.Observer.Read", "through an agent, CPU time", "1 pods", "2 pods",
		"suspected", "confirmed, --min-overlap 1s", "RunPodSandbox with an agent, in turns", "the call → in the table by name",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no row %q in\n%s", want, text)
		}
	}
	t.Log("\n" + text)
}

// fits fails the test if a line is too long for the README.
func fits(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 100 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

// The table fits whatever a machine can do.
func TestTableFits(t *testing.T) {
	const slow = "12.15 s, p99 12.17 s, slowest 12.17 s"
	for _, gigabytes := range []float64{0.012345, 1.2345, 1.7654, 12.345, 123.45} {
		r := &runs{rate: []float64{gigabytes, 1.1 * gigabytes}, cpu: []float64{0.012345}}
		fits(t, render(nil, []block{{rows: []row{
			{"its interface up → in the table by name", slow, ""},
			{"unobserved", tcpFigures(r, false), ""},
			{"dupip, xdp", tcpFigures(r, true), gigabits(r.rate) + " Gb/s"},
		}}}))
	}
}

func TestMedianAndPercentile(t *testing.T) {
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = 100 - i
	}
	for _, tt := range []struct {
		what      string
		got, want int
	}{
		{"median of none", median[int](nil), 0},
		{"median of one", median([]int{7}), 7},
		{"median of three", median([]int{9, 1, 5}), 5},
		{"median of four", median([]int{1, 9, 5, 3}), 4},
		{"p99 of one", percentile([]int{7}, 99), 7},
		{"p99 of a hundred", percentile(hundred, 99), 99},
		{"p99 of ten", percentile(hundred[90:], 99), 10},
		{"p50 of a hundred", percentile(hundred, 50), 50},
		{"p0 of a hundred", percentile(hundred, 0), 1},
		{"p100 of a hundred", percentile(hundred, 100), 100},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %d, want %d", tt.what, tt.got, tt.want)
		}
	}
	if !slices.Equal(hundred[:2], []int{100, 99}) {
		t.Error("the values were sorted in place")
	}
}

func TestChoose(t *testing.T) {
	for only, want := range map[string]int{"": len(sections), "ring": 1, "delay,packets": 2} {
		if got, err := choose(only); err != nil || len(got) != want {
			t.Errorf("%q: %d sections, %v; want %d", only, len(got), err, want)
		}
	}
	if _, err := choose("ring,rong"); err == nil || !strings.Contains(err.Error(), "rong") {
		t.Errorf("rong: %v", err)
	}
	if len(sections) != len(names()) || sections[0].name != "packets" {
		t.Error("choosing has changed the list")
	}
}

// The packet reader must do what it is compared for.
func TestSourceOf(t *testing.T) {
	ip4, ip6 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("2001:db8::1")
	arp := lab.Ethernet(nodeMAC, podMAC, 0, etherARP, lab.ARP(lab.ARPReply, podMAC, ip4, nodeMAC, netip.MustParseAddr("10.0.0.9")))
	for _, tt := range []struct {
		what  string
		frame []byte
		want  netip.Addr
	}{
		{"IPv4", ipFrame("10.0.0.1", 0), ip4},
		{"IPv6", ipFrame("2001:db8::1", 0), ip6},
		{"ARP", arp, ip4},
		{"cut ARP", arp[:30], netip.Addr{}},
		{"cut IPv4", ipFrame("10.0.0.1", 0)[:33], netip.Addr{}},
		{"nothing", nil, netip.Addr{}},
	} {
		if got, ok := sourceOf(tt.frame); got != tt.want || ok != tt.want.IsValid() {
			t.Errorf("%s: %v %t, want %v", tt.what, got, ok, tt.want)
		}
	}
}
