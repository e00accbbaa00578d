package judge

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Kind is the kind of a finding.
type Kind string

// The kinds of findings.
const (
	// Overdue: not confirmed in time. Late or Missed follows.
	Overdue Kind = "overdue"
	// Missed: an agent never confirmed a pair.
	Missed Kind = "missed"
	// Late: an agent did not confirm a pair in time.
	Late Kind = "late"
	// Invented: a conflict was confirmed, and no two holders shared the address for long enough.
	Invented Kind = "invented"
	// Wrong: a conflict is confirmed with the wrong holders.
	Wrong Kind = "wrong"
	// Dropped: a conflict is not confirmed any more while both holders still have the address.
	Dropped Kind = "dropped"
	// Lingering: a conflict is still confirmed long after its end.
	Lingering Kind = "lingering"
	// Suspicious: a suspicion is still open with one holder.
	Suspicious Kind = "lingering suspicion"
)

// Finding is a wrong report, or a missing one, of a node's agent.
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
	// Long counts the pairs of holders that shared an address long enough that they had to be found;
	// Found those, and shorter ones, that were found at the nodes of both.
	Long, Found int
	Findings    map[Kind]int
	// Delays are the times at each node from when both certainly had the address to the confirmation.
	// Deaf are those of pairs with a deaf holder.
	// Held are those that a restart may have delayed, from when the last agent was ready.
	Delays, Deaf, Held []time.Duration
	// Stalled is for how long this process was stalled, which the limits allow for.
	Stalled time.Duration
	// Slowest describes the longest of Delays.
	Slowest string
}

func (t *Tally) delay(d time.Duration, p *pair, node string) {
	if p.deaf() {
		t.Deaf = append(t.Deaf, d)
		return
	}
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
