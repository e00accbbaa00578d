package scenarios

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/tests/lab"
	"github.com/dupip/dupip/tests/othertools"
)

// How alarms are held against what is true.
func TestVerdict(t *testing.T) {
	t.Parallel()
	start := time.Now()
	at := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }
	ips := lab.IPs("10.9.0.5", "fd00::5", "10.9.0.6", "10.9.0.7")
	twice := func(from, since, until float64, ips ...netip.Addr) *duplicate {
		return &duplicate{finding: finding{from: at(from), since: at(since)}, until: at(until), ips: ips}
	}
	one := []*duplicate{twice(0, 1, 9, ips[:2]...)}
	late := twice(0, 1, 9, ips[0])
	late.sendingSince, late.heldUp = at(5), 3*time.Second
	for _, tt := range []struct {
		name       string
		duplicates []*duplicate
		more       []netip.Addr
		alarms     []othertools.Alarm
		want       string
	}{
		{"no alarm", one, nil, nil, "missed"},
		{"found", one, nil, []othertools.Alarm{{IP: ips[0], At: at(2.5)}}, "1.5 s"},
		{"found by the other address", one, nil, []othertools.Alarm{{IP: ips[1], At: at(2.5)}}, "1.5 s"},
		{"the first alarm counts", one, nil, []othertools.Alarm{{IP: ips[1], At: at(2)}, {IP: ips[0], At: at(3)}}, "1.0 s"},
		{"found before the first packet", one, nil, []othertools.Alarm{{IP: ips[0], At: at(0.5)}}, "0.0 s"},
		{"before there were two", one, nil, []othertools.Alarm{{IP: ips[0], At: at(-1)}}, "missed FALSE (1)"},
		{"too late", one, nil, []othertools.Alarm{{IP: ips[0], At: at(10)}}, "missed"},
		{"found while another one was waited for", []*duplicate{late}, nil, []othertools.Alarm{{IP: ips[0], At: at(4)}}, "3.0 s"},
		{"found when it was its turn", []*duplicate{late}, nil, []othertools.Alarm{{IP: ips[0], At: at(6)}}, "2.0 s"},
		{"another address", one, nil, []othertools.Alarm{{IP: ips[2], At: at(2)}, {IP: ips[2], At: at(3)}}, "missed FALSE (1)"},
		{"both", one, nil, []othertools.Alarm{{IP: ips[2], At: at(2)}, {IP: ips[0], At: at(3)}}, "2.0 s FALSE (1)"},
		{
			"one of two",
			[]*duplicate{one[0], twice(0, 1, 9, ips[2])},
			nil,
			[]othertools.Alarm{{IP: ips[2], At: at(3)}},
			"1 of 2 2.0 s",
		},
		{
			"it comes back",
			[]*duplicate{twice(0, 1, 4, ips[0]), twice(5, 6, 9, ips[0])},
			nil,
			[]othertools.Alarm{{IP: ips[0], At: at(2)}, {IP: ips[0], At: at(9)}},
			"3.0 s",
		},
		{
			"one holder, then two", one, nil,
			[]othertools.Alarm{{IP: ips[0], At: at(-1)}, {IP: ips[0], At: at(2)}},
			"1.0 s FALSE (1)",
		},
		{"quiet", nil, nil, nil, "quiet"},
		{"false", nil, nil, []othertools.Alarm{{IP: ips[0], At: at(2)}, {IP: ips[3], At: at(2)}}, "FALSE (2)"},
		{"a real one in a quiet story", nil, ips[:1], []othertools.Alarm{{IP: ips[0], At: at(2)}}, "quiet"},
	} {
		if got := judge(tt.alarms, tt.duplicates, tt.more).text(); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

// The last line sums it up.
func TestSummary(t *testing.T) {
	t.Parallel()
	second := time.Second
	row := &outcome{}
	b := results{verdicts: []verdict{
		{row, []score{{name: "x", of: 2, took: []time.Duration{3 * second, second}}, {name: "y", of: 2}}},
		{row, []score{{name: "x", of: 1, took: []time.Duration{2 * second}}, {name: "y", of: 1, took: []time.Duration{second}}}},
		{row, []score{{name: "x"}, {name: "y", wrong: lab.IPs("10.9.0.5", "10.9.0.6")}}},
	}}
	var out bytes.Buffer
	b.print(&out)
	text := strings.TrimSpace(out.String())
	lines := strings.Split(text, "\n")
	const want = "compared in 3 stories: x 3 of 3 and 0 false, y 1 of 3 and 1 false"
	if got := lines[len(lines)-1]; got != want {
		t.Errorf("last line: got %q, want %q", got, want)
	}
	for _, want := range []string{"3 of 3 2 of 2 0 of 3 2.0 s 3.0 s", "1 of 3 1 of 2 1 of 3 1.0 s 1.0 s"} {
		if !strings.Contains(strings.Join(strings.Fields(text), " "), want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}
