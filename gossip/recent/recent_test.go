package recent

import "testing"

// What is used is kept, what is not makes room.
func TestMap(t *testing.T) {
	r := Map[int, int]{Half: 10}
	created := 0
	get := func(id int) *int { return r.Get(id, func() *int { created++; return new(created) }) }
	first := get(1)
	for id := range 100 {
		get(100 + id)
		if id%3 == 0 && get(1) != first {
			t.Fatalf("what is used is lost after %d", id)
		}
	}
	if r.Len() > 2*r.Half || r.Get(100, nil) != nil || r.Get(199, nil) == nil || created != 101 {
		t.Errorf("%d are kept, %d created", r.Len(), created)
	}
}
