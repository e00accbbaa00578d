package detector

import (
	"strings"
	"testing"
	"time"
)

// goneHolders names the holders of the only conflict that have gone or are going.
func (w *world) goneHolders() string {
	w.t.Helper()
	open := w.d.Conflicts(false)
	if len(open) != 1 || open[0].State != Confirmed {
		w.t.Fatalf("conflicts %+v", open)
	}
	var names []string
	for _, b := range open[0].Holders {
		if b.Gone {
			names = append(names, w.name(b.Holder.ID))
		}
	}
	return strings.Join(names, " ")
}

// A holder of a confirmed conflict that was lost, or was silent at last, is marked until the conflict ends.
func TestGoneHolders(t *testing.T) {
	for name, test := range map[string]struct{ happens, want string }{
		"none":               {"9s a sends", ""},
		"its netns ended":    {"9s b gone", "b"},
		"it lost it":         {"9s b loses", "b"},
		"it does not answer": {"9s b mute", "b"},
		"on another node":    {"9s b@n2 gone", "b@n2"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Options{})
			second, _, _ := strings.Cut(test.happens[3:], " ")
			if test.want == "" {
				second = "b"
			}
			w.play("0s a announces\n0s "+second+" announces\n"+test.happens, 0)
			for range 100 {
				if w.goneHolders() == test.want {
					break
				}
				w.run(w.now.Add(100 * time.Millisecond))
			}
			if got := w.goneHolders(); got != test.want {
				t.Errorf("gone are %q, want %q", got, test.want)
			}
		})
	}
}
