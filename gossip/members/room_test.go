package members

import (
	"io"
	"net"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
)

func TestRoom(t *testing.T) {
	type step struct {
		stream string // its first letter is the address
		size   int
		want   bool
		cut    []string // so far
	}
	for name, steps := range map[string][]step{
		"all have some":                       {{"a1", 6, true, nil}, {"b1", 4, true, nil}},
		"one may have so much":                {{"a1", 6, true, nil}, {"a1", 1, false, nil}},
		"who holds more makes way":            {{"a1", 6, true, nil}, {"b1", 4, true, nil}, {"c1", 1, true, []string{"a1"}}},
		"who holds as much does not":          {{"a1", 5, true, nil}, {"b1", 5, true, nil}, {"c1", 5, false, nil}},
		"or would, then":                      {{"a1", 5, true, nil}, {"b1", 3, true, nil}, {"b1", 3, false, nil}},
		"an address counts, not a stream":     {{"a1", 3, true, nil}, {"a2", 2, true, nil}, {"b1", 4, true, nil}, {"c1", 4, true, []string{"a1"}}},
		"several make way":                    {{"a1", 6, true, nil}, {"b1", 4, true, nil}, {"c1", 2, true, []string{"a1"}}, {"e1", 3, true, []string{"a1"}}, {"d1", 2, true, []string{"a1", "b1"}}},
		"the larger of one address":           {{"a1", 5, true, nil}, {"a2", 2, true, []string{"a1"}}},
		"not the smaller":                     {{"a1", 2, true, nil}, {"a2", 4, true, nil}, {"a2", 1, false, nil}},
		"who was cut off takes nothing":       {{"a1", 6, true, nil}, {"b1", 4, true, nil}, {"c1", 1, true, []string{"a1"}}, {"a1", 1, false, []string{"a1"}}},
		"no more than there is, for anybody":  {{"a1", 7, false, nil}},
		"its address has room once more then": {{"a1", 6, true, nil}, {"a2", 1, true, []string{"a1"}}, {"a2", 5, true, []string{"a1"}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRoom(10, 6)
			var dropped drops
			streams := map[string]*stream{}
			for i, step := range steps {
				s := streams[step.stream]
				if s == nil {
					near, far := net.Pipe()
					defer far.Close()
					s = &stream{Conn: near, room: r, release: func() {}, drops: &dropped, from: netip.AddrFrom4([4]byte{10, 0, 0, step.stream[0]})}
					streams[step.stream] = s
					go func() { // as those who read do
						io.Copy(io.Discard, s)
						s.Close()
					}()
				}
				got := r.take(s, step.size)
				var cut []string
				for name, s := range streams {
					if s.cut.Load() {
						cut = append(cut, name)
						if _, err := s.Write([]byte("x")); err != errStreaming { //nolint:errorlint // nothing wraps it
							t.Errorf("step %d: %s was cut off, and writing fails by %v", i, name, err)
						}
					}
				}
				slices.Sort(cut)
				if got != step.want || !slices.Equal(cut, step.cut) {
					t.Errorf("step %d: %t, want %t; cut off %q, want %q", i, got, step.want, cut, step.cut)
				}
			}
			if got, want := int(dropped[dropStream].Load()), len(steps[len(steps)-1].cut); got != want {
				t.Errorf("%d counted, want %d", got, want)
			}
			for _, s := range streams {
				s.Close()
			}
			if r.held() != 0 || len(r.from) != 0 || len(r.streams) != 0 {
				t.Errorf("%d are held, by %v", r.held(), r.from)
			}
		})
	}
}

// What somebody has to let go of is not free before; at the end nobody waits for it.
func TestRoomWaits(t *testing.T) {
	for name, let := range map[string]func(*room, *stream){
		"until it is free": func(_ *room, s *stream) { s.Close() },
		"until the end":    func(r *room, _ *stream) { r.end() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRoom(10, 10)
				var streams []*stream
				for i := range 2 {
					near, far := net.Pipe()
					defer far.Close()
					s := &stream{Conn: near, room: r, release: func() {}, drops: new(drops), from: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})}
					defer s.Close()
					streams = append(streams, s)
				}
				r.take(streams[0], 10)
				took := make(chan bool, 1)
				go func() { took <- r.take(streams[1], 1) }()
				synctest.Wait()
				if len(took) > 0 || !streams[0].cut.Load() || r.held() != 10 {
					t.Errorf("%d bytes are held, by one who was cut off: %t", r.held(), streams[0].cut.Load())
				}
				let(r, streams[0])
				if got, want := <-took, !r.ended; got != want {
					t.Errorf("taken: %t, want %t", got, want)
				}
			})
		})
	}
}

// held is what is taken now, in all.
func (r *room) held() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all
}

// held is what is taken now, in all.
func (q *quota) held() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.all
}

// Who lacks room of its own address does not wait for a stranger to leave; and who waits,
// and is cut off then, is told at once.
func TestRoomOfOnesOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(10, 6)
		var dropped drops
		open := func(address byte) *stream {
			near, far := net.Pipe()
			t.Cleanup(func() { far.Close() })
			return &stream{Conn: near, room: r, release: func() {}, drops: &dropped, from: netip.AddrFrom4([4]byte{10, 0, 0, address})}
		}
		stranger, first, second := open('a'), open('b'), open('b')
		if !r.take(stranger, 6) || !r.take(first, 4) {
			t.Fatal("there is no room")
		}
		took := make(chan bool, 2)
		go func() { took <- r.take(first, 1) }() // waits for the stranger, who stays
		synctest.Wait()
		go func() { r.take(second, 3) }()
		synctest.Wait()
		if !stranger.cut.Load() || !first.cut.Load() {
			t.Errorf("cut off: the stranger %t, the first %t, want both", stranger.cut.Load(), first.cut.Load())
		}
		select {
		case got := <-took:
			if got {
				t.Error("who was cut off has taken more")
			}
		default:
			t.Error("who was cut off waits on")
		}
		for _, s := range []*stream{stranger, first, second} {
			s.Close()
		}
		synctest.Wait()
	})
}
