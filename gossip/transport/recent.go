package transport

// recent is a map of bounded size: it has two halves, and what is not used while the younger one fills
// is forgotten.
type recent[K comparable, V any] struct {
	half       int // the most values in each
	young, old map[K]*V
}

// get returns the value of a key. If there is none it stores what create returns; with nil it returns nil.
func (r *recent[K, V]) get(key K, create func() *V) *V {
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
	if r.young == nil || len(r.young) >= r.half {
		r.young, r.old = make(map[K]*V), r.young
	}
	r.young[key] = v
	return v
}
