package pods

import "time"

// maxWanted bounds the netns remembered as wanted.
const maxWanted = 4096

// pauses are those between the lists that a wanted netns leads to. Then it has to wait
// for the ordinary ones: most likely it belongs to no pod.
var pauses = []time.Duration{
	50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second,
}

// wants are the netns whose pod is asked for.
type wants struct {
	cookies map[uint64]struct{}
	// at is when the next list is due because of them, zero for none.
	at   time.Time
	step int
	// againAt is when the list is due because somebody wants to know what changed, zero for
	// never; not before againFrom.
	againAt, againFrom time.Time
}

// againPause is how long such a list waits for the one before.
const againPause = 5 * time.Second

// again wants the list once more.
func (w *wants) again(now time.Time) {
	if w.againAt.IsZero() {
		w.againAt = now
		if now.Before(w.againFrom) {
			w.againAt = w.againFrom
		}
	}
}

// due returns when the next list is due: at the ordinary time, or earlier because something
// is wanted.
func (w *wants) due(ordinary time.Time) time.Time {
	if len(w.cookies) > 0 && !w.at.IsZero() && w.at.Before(ordinary) {
		ordinary = w.at
	}
	if !w.againAt.IsZero() && w.againAt.Before(ordinary) {
		return w.againAt
	}
	return ordinary
}

// list notes that the list is asked for now.
func (w *wants) list(now time.Time) {
	w.againAt, w.againFrom = time.Time{}, now.Add(againPause)
}

// add wants one more, and says whether it was not wanted before.
func (w *wants) add(cookie uint64, now time.Time) bool {
	if _, ok := w.cookies[cookie]; ok {
		return false
	}
	if len(w.cookies) >= maxWanted {
		// These are old: a node has not got so many pods.
		clear(w.cookies)
	}
	w.cookies[cookie] = struct{}{}
	w.step = 1
	if next := now.Add(pauses[0]); w.at.IsZero() || next.Before(w.at) {
		w.at = next
	}
	return true
}

// listed says that the runtime was asked, and plans the next time if something still is
// wanted.
func (w *wants) listed(now time.Time) {
	if len(w.cookies) == 0 || w.step >= len(pauses) {
		w.at = time.Time{}
		return
	}
	w.at = now.Add(pauses[w.step])
	w.step++
}
