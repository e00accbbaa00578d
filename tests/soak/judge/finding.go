package judge

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Kind says what is wrong.
type Kind string

// The kinds of findings.
const (
	// Overdue is a first word: it will be Late or Missed.
	Overdue Kind = "overdue"
	// Missed: two had an address for long, and the agent of one did not confirm it.
	Missed Kind = "missed"
	// Late: it did, but not in time.
	Late Kind = "late"
	// Invented: it was confirmed, and no two had the address for as long as it takes.
	Invented Kind = "invented"
	// Wrong: it is confirmed with holders that are not the ones.
	Wrong Kind = "wrong"
	// Dropped: it was confirmed and is not any more, while both still have the address.
	Dropped Kind = "dropped"
	// Lingering: it is still confirmed long after its end.
	Lingering Kind = "lingering"
	// Suspicious: a suspicion is still open where only one has the address.
	Suspicious Kind = "lingering suspicion"
)

// Finding is something that is wrong at the agent of a node.
type Finding struct {
	Kind    Kind
	Node    string
	IP      netip.Addr
	At      time.Duration
	Holders []Holder
	Text    string
}

func (f Finding) String() string {
	var holders []string
	for _, h := range f.Holders {
		holders = append(holders, h.String())
	}
	return fmt.Sprintf("%s: %v at %s, holders %s: %s", strings.ToUpper(string(f.Kind)), f.IP, f.Node, strings.Join(holders, ", "), f.Text)
}

// Tally counts verdicts.
type Tally struct {
	// Long counts the pairs of holders that had an address for so long that it had to be
	// found; Found those, and briefer ones, that were found at the nodes of both.
	Long, Found int
	Findings    map[Kind]int
	// Delays are how long it took at each node from when both had the address for certain
	// to the confirmation. Held are the same where a restart may have held it up, not
	// counted before the last agent was ready.
	Delays, Held []time.Duration
	// Stalled is for how long in all nobody could look, which is forgiven.
	Stalled time.Duration
	// Slowest tells of the longest of Delays.
	Slowest string
}

func (t *Tally) delay(d time.Duration, p *pair, node string) {
	if t.Slowest == "" || d > slices.Max(t.Delays) {
		from, _ := p.certain()
		t.Slowest = fmt.Sprintf("%v at %s, shared by %v and %v since %s", p.ip, node, p.x.holder, p.y.holder, seconds(from))
	}
	t.Delays = append(t.Delays, d)
}

// Tally returns the counts so far.
func (j *Judge) Tally() Tally { return j.tally }

func (j *Judge) finding(kind Kind, p *pair, node string, at time.Duration, text string) Finding {
	return Finding{Kind: kind, Node: node, IP: p.ip, At: at, Holders: []Holder{p.x.holder, p.y.holder}, Text: text}
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f s", d.Seconds()) }
