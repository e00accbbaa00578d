package schedule

import (
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	var p Pace
	at := time.Unix(1000, 0)
	if got := p.Next(at); !got.Equal(at) {
		t.Errorf("the first begins at %v, want at once", got)
	}
	p.Done(at, at.Add(100*time.Millisecond))
	if got, want := p.Next(at.Add(time.Second)), at.Add(2100*time.Millisecond); !got.Equal(want) {
		t.Errorf("the next begins at %v, want %v", got, want)
	}
	if late := at.Add(time.Minute); !p.Next(late).Equal(late) {
		t.Error("what is wanted late does not begin at once")
	}
}
