package detector

import (
	"fmt"
	"testing"
)

// A repeated note that has nothing new moves to the end and is counted, unless the conflict changed its state in between.
func TestNotesFold(t *testing.T) {
	type told struct {
		note   *template
		holder uint64
		arg    string
	}
	for name, tt := range map[string]struct {
		told []told
		want string // holder, argument and count of each note
	}{
		"a repeat":                     {[]told{{noteProbed, 1, "x"}, {noteProbed, 1, "x"}, {noteProbed, 1, "x"}}, "1x3"},
		"it moves to the end":          {[]told{{noteProbed, 1, "x"}, {noteAnswer, 2, "y"}, {noteProbed, 1, "x"}}, "2y1 1x2"},
		"another holder":               {[]told{{noteProbed, 1, "x"}, {noteProbed, 2, "x"}}, "1x1 2x1"},
		"another argument":             {[]told{{noteProbed, 1, "x"}, {noteProbed, 1, "y"}}, "1x1 1y1"},
		"another sort":                 {[]told{{noteProbed, 1, "x"}, {noteAnswer, 1, "x"}}, "1x1 1x1"},
		"one that never folds":         {[]told{{noteNoAnswer, 1, "x"}, {noteNoAnswer, 1, "x"}}, "1x1 1x1"},
		"MACs come in any number":      {[]told{{noteOtherMAC, 1, "x"}, {noteOtherMAC, 1, "y"}}, "1y2"},
		"late answers, too":            {[]told{{noteLate, 1, "x"}, {noteLate, 1, "y"}}, "1y2"},
		"a state of the conflict":      {[]told{{noteProbed, 1, "x"}, {noteConflict, 0, "c"}, {noteProbed, 1, "x"}}, "1x1 0c1 1x1"},
		"only since the last state":    {[]told{{noteProbed, 1, "x"}, {noteConflict, 0, "c"}, {noteProbed, 1, "x"}, {noteProbed, 1, "x"}}, "1x1 0c1 1x2"},
		"other notes are no hindrance": {[]told{{noteProbed, 1, "x"}, {noteNoAnswer, 1, "n"}, {noteProbed, 1, "x"}}, "1n1 1x2"},
	} {
		var s story
		for i, n := range tt.told {
			if got := s.record(clock(float64(i)), HolderID{Netns: n.holder}, n.note, n.arg); got != &s.notes[len(s.notes)-1] || !got.at.Equal(clock(float64(i))) {
				t.Errorf("%s: note %d is %+v", name, i, got)
			}
		}
		got := ""
		for i, n := range s.notes {
			got += fmt.Sprintf("%.*s%d%s%d", min(i, 1), " ", n.holder.Netns, n.arg, n.count)
		}
		if got != tt.want {
			t.Errorf("%s: notes %q, want %q", name, got, tt.want)
		}
	}
}

// The oldest note makes room for a new one, and stays if a repeat comes.
func TestNotesMakeRoom(t *testing.T) {
	var s story
	for i := range maxNotes {
		s.record(clock(float64(i)), HolderID{}, noteProbed, fmt.Sprint(i))
	}
	s.record(clock(100), HolderID{}, noteProbed, fmt.Sprint(maxNotes-1))
	if len(s.notes) != maxNotes || s.notes[0].arg != "0" {
		t.Errorf("%d notes after a repeat, the first is of %s", len(s.notes), s.notes[0].arg)
	}
	s.record(clock(101), HolderID{}, noteProbed, "new")
	if len(s.notes) != maxNotes || s.notes[0].arg != "1" || s.notes[maxNotes-1].arg != "new" {
		t.Errorf("%d notes after a new one, from %s to %s", len(s.notes), s.notes[0].arg, s.notes[len(s.notes)-1].arg)
	}
}

// gone is a holder that is gone, on this node if here.
func gone(netns uint64, first, last float64, here bool, ends int) former {
	return former{Binding: Binding{
		Holder: Holder{ID: HolderID{Netns: netns}, NetnsName: fmt.Sprintf("pod%d", netns)}, FirstSeen: clock(first), LastSeen: clock(last),
	}, here: here, ends: ends}
}

// A holder that goes again is remembered once, as the last one, with its first time; it comes and goes if each time was less than the TTL
// after the last.
func TestFormerThatCameBack(t *testing.T) {
	for name, tt := range map[string]struct {
		again former
		ends  int
		here  bool
	}{
		"soon":                   {gone(1, 50, 60, true, 1), 2, true},
		"just within the TTL":    {gone(1, 50, 309.9, true, 1), 2, true},
		"after the TTL":          {gone(1, 50, 310, true, 1), 1, true},
		"it did not count again": {gone(1, 50, 60, false, 0), 1, true},
	} {
		var s story
		s.addFormer(gone(1, 0, 10, true, 1))
		s.addFormer(gone(2, 5, 20, true, 1))
		tt.again.Unreachable, tt.again.Gone = true, true
		s.addFormer(tt.again)
		if len(s.former) != 2 || s.formerOf(HolderID{Netns: 1}) != 1 || s.formerOf(HolderID{Netns: 3}) != -1 {
			t.Fatalf("%s: former holders %+v", name, s.former)
		}
		f := s.former[1]
		if f.ends != tt.ends || f.here != tt.here || !f.FirstSeen.Equal(clock(0)) || !f.LastSeen.Equal(tt.again.LastSeen) || f.Unreachable || f.Gone {
			t.Errorf("%s: remembered as %+v", name, f)
		}
	}
}

// Who has ended three times in a row comes and goes.
func TestFlappingClause(t *testing.T) {
	for want, ends := range map[string][]int{
		"":                                      {0, 1, 2},
		"; pod2 comes and goes, 3 times so far": {2, 3},
		"; pod1 comes and goes, 4 times so far; pod3 comes and goes, 30 times so far": {4, 1, 30},
	} {
		var s story
		for i, n := range ends {
			s.former = append(s.former, gone(uint64(i+1), 0, 1, true, n))
		}
		if got := s.flapping(); got != want {
			t.Errorf("%v: %q, want %q", ends, got, want)
		}
	}
}
