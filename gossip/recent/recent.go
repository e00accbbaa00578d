// Package recent has a map of bounded size.
package recent

// Map has two halves, and what is not used while the younger one fills is forgotten. It is not safe for concurrent use.
type Map[K comparable, V any] struct {
	Half       int // the most values in each
	young, old map[K]*V
}

// Get returns the value of a key. If there is none it stores what create returns; with nil it returns nil.
func (r *Map[K, V]) Get(key K, create func() *V) *V {
	v := r.young[key]
	if v != nil {
		return v
	}
	if v = r.old[key]; v == nil {
		if create == nil {
			return nil
		}
		v = create()
	}
	if r.young == nil || len(r.young) >= r.Half {
		r.young, r.old = make(map[K]*V), r.young
	}
	r.young[key] = v
	return v
}

// Len is how many values are kept; those that were used lately may count twice.
func (r *Map[K, V]) Len() int { return len(r.young) + len(r.old) }
