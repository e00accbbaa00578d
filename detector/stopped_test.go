package detector

import (
	"strings"
	"testing"
	"time"
)

// A remote holder whose agent ended in order keeps a conflict for a while, for the next agent. Then it is not observed any more.
func TestStopped(t *testing.T) {
	for _, tt := range []struct {
		name string
		back time.Duration // when its agent is there again, and replies; 0 for never
		come time.Duration // the same without a reply
		ends time.Duration // when the conflict ends; 0 for never
	}{
		{"for good", 0, 0, stoppedTime + resolveTime},
		{"for an upgrade", time.Minute, 0, 0},
		{"for an upgrade, and the next agent begins slowly", 0, time.Minute, 0},
		{"for a long upgrade", 2 * time.Minute, 0, stoppedTime + resolveTime},
	} {
		w := newWorld(t, Options{})
		w.play("0s a announces\n0s b@n2 announces", 10*time.Second)
		stopped := w.now
		w.do("0s b@n2 unreachable")
		w.d.Stopped("n2/boot", w.now)
		w.d.Stopped("n3/boot", w.now)
		for w.now.Sub(stopped) < 4*time.Minute {
			w.run(w.now.Add(time.Second))
			if tt.back > 0 && w.now.Sub(stopped) == tt.back {
				w.do("0s b@n2 reachable")
			}
			if tt.come > 0 && w.now.Sub(stopped) == tt.come {
				w.d.Returned("n2/boot", w.now)
			}
			if tt.ends == 0 || w.now.Sub(stopped) < tt.ends-time.Second {
				if len(w.d.Conflicts(false)) != 1 {
					t.Fatalf("%s: the conflict ended after %v: %s", tt.name, w.now.Sub(stopped), strings.Join(w.log(), "\n"))
				}
			} else if w.now.Sub(stopped) > tt.ends && len(w.d.Conflicts(false)) != 0 {
				t.Fatalf("%s: the conflict is still open after %v: %s", tt.name, w.now.Sub(stopped), strings.Join(w.log(), "\n"))
			}
		}
		if last := w.events[len(w.events)-1]; tt.ends > 0 && !strings.Contains(last.Reason, "its agent was stopped") {
			t.Errorf("%s: it ended because %s", tt.name, last.Reason)
		}
		w.mustAudit()
	}
}

// Answers of two lives of a remote holder prove nothing together, and those of one do, however late the second comes.
func TestAnswersOfOneLife(t *testing.T) {
	for _, tt := range []struct {
		name        string
		first, then uint64
		want        State
	}{
		{"one life", 7, 7, Confirmed},
		{"two lives", 7, 8, Suspected},
		{"an agent that does not say it", 0, 0, Confirmed},
	} {
		f := newFar(t)
		answer := f.b.sighting(defaultIP, Announced, f.now)
		answer.Answer, answer.Life = true, tt.first
		f.apply(f.d.Observe(answer, f.now))
		f.now = f.now.Add(1100 * time.Millisecond)
		f.apply(f.d.Tick(f.now))
		f.answer(f.a, f.now)
		answer.At, answer.Life = f.now, tt.then
		f.apply(f.d.Observe(answer, f.now))
		if got := f.d.Conflicts(false)[0].State; got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
		f.mustAudit()
	}
}
