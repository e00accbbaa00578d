package detector

import (
	"fmt"
	"slices"
	"time"

	"github.com/dupip/dupip/internal/schedule"
)

// template is the text of one sort of notes. Notes are formatted only when they are read.
type template struct {
	kind NoteKind
	text string // %s is the argument
	// fold: a repeated note replaces the earlier one and counts it.
	fold bool
	// reason is the same text as a clause after the name of a holder.
	reason string
}

var (
	noteFirstSeen     = &template{kind: NoteSeen, text: "first seen: %s"}
	noteOtherDevice   = &template{kind: NoteSeen, text: "also seen on %s", fold: true}
	noteOtherMAC      = &template{kind: NoteSeen, text: "MAC changed %s", fold: true}
	noteOtherEvidence = &template{kind: NoteEvidence, text: "evidence now %s", fold: true}
	noteDataOnly      = &template{kind: NoteEvidence, text: "sends data but did not answer: taken for forwarding, for %s", fold: true, reason: "did not answer"}
	noteSilent        = &template{kind: NoteUnanswered, text: "has the address and did not answer: silent, for %s", fold: true, reason: "did not answer"}
	noteForwards      = &template{kind: NoteEvidence, text: "answered for an address it does not have: taken for forwarding, for %s", fold: true, reason: "answers for an address it does not have"}
	noteForwardsThere = &template{kind: NoteUnanswered, text: "answered its node for an address it does not have%s", reason: "answers for an address it does not have"}
	noteGone          = &template{kind: NoteWithdrawn, text: "withdrawn: %s", reason: "withdrawn: %s"}
	noteGoneOnOne     = &template{kind: NoteWithdrawn, text: "withdrawn on one interface, still on another: %s", fold: true, reason: "%s"}
	noteTTL           = &template{kind: NoteExpired, text: "expired: not seen for the TTL, %s", reason: "not seen for %s"}
	noteStopped       = &template{kind: NoteExpired, text: "forgotten: its agent was stopped in order, and none began within %s", reason: "is not observed any more: its agent was stopped in order, and none began within %s"}
	noteEvicted       = &template{kind: NoteExpired, text: "forgotten to make room: %s", reason: "forgotten: %s"}
	noteNotNeeded     = &template{kind: NoteExpired, text: "forgotten: nobody on this node has the address any more%s"}
	noteNodeProbed    = &template{kind: NoteProbed, text: "a probe request was sent to its node%s", fold: true}
	noteProbed        = &template{kind: NoteProbed, text: "probed to verify%s", fold: true}
	noteProbedAgain   = &template{kind: NoteProbed, text: "probed to re-check%s", fold: true}
	noteRefresh       = &template{kind: NoteProbed, text: "probed because it was silent%s", fold: true}
	noteNotProbed     = &template{kind: NoteProbeRefused, text: "not probed: %s", fold: true}
	noteNodeRefused   = &template{kind: NoteProbeRefused, text: "not verified: %s", fold: true}
	noteAnswer        = &template{kind: NoteAnswered, text: "answered%s", fold: true}
	noteAnswerAgain   = &template{kind: NoteAnswered, text: "answered the re-check%s", fold: true}
	noteLate          = &template{kind: NoteUnanswered, text: "answered after %s, which is too late to count", fold: true}
	noteOverheard     = &template{kind: NoteUnanswered, text: "answered somebody else, and not the probe of this node%s", fold: true}
	noteRefreshed     = &template{kind: NoteAnswered, text: "answered after a silence%s", fold: true}
	noteListed        = &template{kind: NoteEvidence, text: "its kernel has the address configured%s", fold: true}
	noteNoAnswer      = &template{kind: NoteUnanswered, text: "did not answer%s", reason: "did not answer"}
	noteUnheard       = &template{kind: NoteUnanswered, text: "has the address and was not heard on the segment of this node: not counted for %s", fold: true, reason: "was not heard on the segment of this node"}
	noteUnlisted      = &template{kind: NoteUnanswered, text: "its kernel does not have the address%s", reason: "does not have it configured any more"}
	noteMissed        = &template{kind: NoteUnanswered, text: "did not answer a re-check%s", fold: true}
	noteAwaited       = &template{kind: NoteUnanswered, text: "did not answer%s: will be probed again", fold: true}
	noteConflict      = &template{kind: NoteConflict, text: "%s"}
)

// story is what happened to an address, and who had it. It must not know what follows from that.
type story struct {
	notes    []note
	former   []former // holders that are gone: the last ones of this node, and those of notes, the last one last
	faded    string   // why the last suspicion faded; empty if there was a conflict since
	hasStory bool     // there once was a holder that counted
}

type note struct {
	*template
	at     time.Time
	holder HolderID
	arg    string
	took   time.Duration // of an answer
	count  int
}

// record adds a note. A repeat that has nothing new moves the earlier note to the end and counts
// it, unless a conflict changed its state in between. The result is valid until the next call.
func (s *story) record(now time.Time, id HolderID, t *template, arg string) *note {
	n := note{template: t, at: now, holder: id, arg: arg, count: 1}
	if t.fold {
		for i := len(s.notes) - 1; i >= 0 && s.notes[i].template != noteConflict; i-- {
			old := s.notes[i]
			same := old.arg == arg || t == noteOtherMAC || t == noteLate // these come in any number
			if old.template == t && old.holder == id && same {
				n.count += old.count
				s.notes = slices.Delete(s.notes, i, i+1)
				break
			}
		}
	}
	if len(s.notes) == maxNotes {
		s.notes = slices.Delete(s.notes, 0, 1)
	}
	s.notes = append(s.notes, n)
	return &s.notes[len(s.notes)-1]
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

// MaxFormer is how many holders of an address that are gone a node remembers, and a story has.
const MaxFormer = 8

// former is a holder that is gone. LastSeen is when that was, as far as is known.
type former struct {
	Binding
	here bool // it was on this node, also before the node's last boot, and counted
	ends int  // how often in a row it was withdrawn on this node, each time less than bindingTTL after the last
}

// A holder that has ended flaps times in a row comes and goes.
const flaps = 3

// formerOf returns the index of a holder that is gone, -1 if it is not remembered.
func (s *story) formerOf(id HolderID) int {
	return slices.IndexFunc(s.former, func(f former) bool { return f.Holder.ID == id })
}

// addFormer remembers a holder that is gone. More than the last ones stay while there are notes of them, for their names.
func (s *story) addFormer(last former) {
	last.Unreachable, last.Gone = false, false
	if i := s.formerOf(last.Holder.ID); i >= 0 { // it was gone before, and came back
		last.FirstSeen = schedule.Earlier(last.FirstSeen, s.former[i].FirstSeen)
		last.here = last.here || s.former[i].here
		if last.LastSeen.Sub(s.former[i].LastSeen) < bindingTTL {
			last.ends += s.former[i].ends
		}
		s.former = slices.Delete(s.former, i, i+1)
	}
	s.former = append(s.former, last)
	here := 0
	for i := range slices.Backward(s.former) {
		if f := &s.former[i]; f.here {
			here++
			f.here = here <= MaxFormer
		}
	}
	s.former = slices.DeleteFunc(s.former, func(f former) bool {
		return !f.here && !slices.ContainsFunc(s.notes, func(n note) bool { return n.holder == f.Holder.ID })
	})
}

// flapping says which holders come and go, as a clause for people after another one; empty if none does. Such a holder is suspected each time
// that it is there with another one, and confirmed if both are there for long enough.
func (s *story) flapping() (text string) {
	for _, f := range s.former {
		if f.ends >= flaps {
			text += fmt.Sprintf("; %s comes and goes, %d times so far", f.Holder, f.ends)
		}
	}
	return text
}
