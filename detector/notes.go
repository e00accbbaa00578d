package detector

import (
	"fmt"
	"slices"
	"time"
)

// tell is what a note tells; the text is made only when somebody asks.
type tell uint8

const (
	tellSeen tell = iota + 1
	tellSource
	tellMAC
	tellEvidence
	tellDemoted
	tellForwards
	tellForwardsThere
	tellWithdrawn
	tellSourceGone
	tellExpired
	tellEvicted
	tellUnneeded
	tellSolicited
	tellAsked
	tellRecheck
	tellRefresh
	tellNotSolicited
	tellNotAsked
	tellAnswered
	tellRechecked
	tellRefreshed
	tellUnanswered
	tellMissed
	tellSilent
	tellConflict
)

// tells gives each its kind, its text (%s is the argument) and whether repeats are
// folded into one note.
var tells = [...]struct {
	kind NoteKind
	text string
	fold bool
}{
	tellSeen:          {NoteSeen, "first seen: %s", false},
	tellSource:        {NoteSeen, "also seen on %s", true},
	tellMAC:           {NoteSeen, "MAC changed %s", true},
	tellEvidence:      {NoteEvidence, "evidence now %s", true},
	tellDemoted:       {NoteEvidence, "sends data but did not answer: taken for forwarding, for %s", true},
	tellForwards:      {NoteEvidence, "answered for an address it does not have: taken for forwarding, for %s", true},
	tellForwardsThere: {NoteUnanswered, "answered its node for an address it does not have%s", false},
	tellWithdrawn:     {NoteWithdrawn, "withdrawn: %s", false},
	tellSourceGone:    {NoteWithdrawn, "withdrawn on one interface, still on another: %s", true},
	tellExpired:       {NoteExpired, "expired: not seen for the TTL%s", false},
	tellEvicted:       {NoteExpired, "forgotten to make room: %s", false},
	tellUnneeded:      {NoteExpired, "forgotten: nobody on this node has the address any more%s", false},
	tellAsked:         {NoteSolicited, "its node was asked%s", true},
	tellSolicited:     {NoteSolicited, "solicited to verify%s", true},
	tellRecheck:       {NoteSolicited, "solicited to re-check%s", true},
	tellRefresh:       {NoteSolicited, "solicited because it was silent%s", true},
	tellNotSolicited:  {NoteNotSolicited, "not solicited: %s", true},
	tellNotAsked:      {NoteNotSolicited, "not verified: %s", true},
	tellAnswered:      {NoteAnswered, "answered%s", true},
	tellRechecked:     {NoteAnswered, "answered the re-check%s", true},
	tellRefreshed:     {NoteAnswered, "answered after a silence%s", true},
	tellUnanswered:    {NoteUnanswered, "did not answer%s", false},
	tellMissed:        {NoteUnanswered, "did not answer a re-check%s", true},
	tellSilent:        {NoteUnanswered, "did not answer%s: will be asked again", true},
	tellConflict:      {NoteConflict, "%s", false},
}

// clause is the same as a reason: it follows the name of the holder.
func (t tell) clause(arg string) string {
	switch t {
	case tellWithdrawn:
		return "withdrawn: " + arg
	case tellExpired:
		return "not seen for " + arg
	case tellEvicted:
		return "forgotten: " + arg
	case tellForwards, tellForwardsThere:
		return "answers for an address it does not have"
	default:
		return "did not answer"
	}
}

type note struct {
	at     time.Time
	tell   tell
	holder HolderID
	arg    string
	took   time.Duration // of an answer
	count  int
}

func (n *note) public() Note {
	t := tells[n.tell]
	text := fmt.Sprintf(t.text, n.arg)
	if n.tell == tellAnswered || n.tell == tellRechecked {
		text += " after " + roughly(n.took)
	}
	if n.count > 1 {
		text += fmt.Sprintf(" (%d times)", n.count)
	}
	return Note{At: n.at, Kind: t.kind, Holder: n.holder, Text: text}
}

// tell adds a note. A repeat that would tell the reader nothing new moves the earlier
// note to the end and counts, unless a conflict changed its state in between. The
// result is valid until the next call.
func (e *entry) tell(now time.Time, id HolderID, t tell, arg string) *note {
	n := note{at: now, tell: t, holder: id, arg: arg, count: 1}
	if tells[t].fold {
		for i := len(e.notes) - 1; i >= 0 && e.notes[i].tell != tellConflict; i-- {
			old := e.notes[i]
			same := old.arg == arg || t == tellMAC // MACs come in any number
			if old.tell == t && old.holder == id && same {
				n.count += old.count
				e.notes = slices.Delete(e.notes, i, i+1)
				break
			}
		}
	}
	if len(e.notes) == maxNotes {
		e.notes = slices.Delete(e.notes, 0, 1)
	}
	e.notes = append(e.notes, n)
	return &e.notes[len(e.notes)-1]
}

// roughly prints a duration with two digits or so.
func roughly(d time.Duration) string {
	switch {
	case d >= time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d >= 10*time.Millisecond:
		return fmt.Sprintf("%.0f ms", float64(d)/1e6)
	case d >= 100*time.Microsecond:
		return fmt.Sprintf("%.1f ms", float64(d)/1e6)
	default:
		return fmt.Sprintf("%d µs", d.Microseconds())
	}
}
