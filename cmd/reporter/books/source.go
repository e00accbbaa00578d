package books

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/dupip/dupip/cmd/reporter/kube"
	"github.com/dupip/dupip/document"
)

const (
	// After a failure the next try waits for minPause, which doubles up to maxPause; after success for longer than that it is short again.
	minPause, maxPause = time.Second, 10 * time.Second
	// absentAgain is how often a resource that does not exist is looked for again.
	absentAgain = 5 * time.Minute
	// maxObjects and maxReservations bound what is kept of one resource.
	maxObjects, maxReservations = 1 << 18, 1 << 20
	// maxBroken bounds the objects that are counted as broken.
	maxBroken = 1000
)

// reading says how far a source is read.
type reading int

const (
	unread  reading = iota // not yet, or not any more
	watched                // and what changes comes at once
	absent                 // the resource does not exist
)

// source is the objects of one resource, of which something is kept. It is read by follow; the lock of [Books] guards it.
type source struct {
	// name is that of the resource; paths are where it may be, by API group: the first one that exists is read.
	name  string
	paths []string
	query url.Values
	// decode decodes an object. Its part that all have is set as far as it could be read. list reads all of them.
	decode func(text json.RawMessage) (decoded, error)
	list   func(ctx context.Context, api *kube.Client, path string, use func(decoded, error) error) (version string, err error)
	// drop forgets an object.
	drop func(key string)

	state   reading
	err     error           // why it is not watched
	path    string          // of those that exists
	objects map[string]int  // how many reservations each has, by "namespace/name" or name
	broken  map[string]bool // those that cannot be read
	total   int             // of reservations
	changed bool            // since the last comparison
	same    bool            // take has found that what is kept of an object does not change
	// again is the object that is being read again, overtaken: a watch has told of it meanwhile.
	again     string
	overtaken bool
}

// decoded is an object that is not taken yet. take returns how many reservations it has.
type decoded struct {
	*object
	take func() (reservations int, err error)
}

// kind is a type of objects, of which only the fields that are used are decoded.
type kind[T any] interface {
	*T
	meta() *object
}

// newSource returns a source of the resource that may be at these paths. take takes an object, and returns how many reservations it has.
func newSource[T any, P kind[T]](name string, paths []string, take func(P) (int, error), drop func(string)) *source {
	s := &source{name: name, paths: paths, drop: drop, objects: make(map[string]int), broken: make(map[string]bool)}
	with := func(v P) decoded { return decoded{v.meta(), func() (int, error) { return take(v) }} }
	s.decode = func(text json.RawMessage) (decoded, error) {
		v := P(new(T))
		err := json.Unmarshal(text, v)
		return with(v), err
	}
	s.list = func(ctx context.Context, api *kube.Client, path string, use func(decoded, error) error) (string, error) {
		return kube.List(ctx, api, path, s.query, func(v *T, err error) error { return use(with(v), err) })
	}
	return s
}

// object is what all objects have.
type object struct {
	Metadata struct {
		Name, Namespace, UID                 string
		CreationTimestamp, DeletionTimestamp time.Time
		Annotations                          map[string]string
		OwnerReferences                      []struct{ Kind, Name, UID string }
	}
}

func (o *object) meta() *object { return o }

// key identifies the object in its resource.
func (o *object) key() string {
	if o.Metadata.Namespace == "" {
		return o.Metadata.Name
	}
	return o.Metadata.Namespace + "/" + o.Metadata.Name
}

var errTooMany = fmt.Errorf("it has more than %d objects or %d reservations", maxObjects, maxReservations)

// named reports whether an object has the names that an object has.
func (o *object) named() bool {
	m := &o.Metadata
	return m.Name != "" && len(m.Name) <= document.MaxName && len(m.Namespace) <= document.MaxName
}

// put takes an object as it is now. One that cannot be read is no object: a broken one must not hide the others.
func (s *source) put(o decoded, err error) error {
	if !o.named() {
		s.broken[""] = true
		return nil
	}
	key, n := o.key(), 0
	delete(s.broken, key)
	s.same = false
	if err == nil {
		n, err = o.take()
	}
	s.changed = s.changed || !s.same
	if err != nil {
		if s.remove(key); len(s.broken) < maxBroken {
			s.broken[key] = true
		}
		return nil
	}
	s.total += n - s.objects[key]
	if s.objects[key] = n; len(s.objects) > maxObjects || s.total > maxReservations {
		return errTooMany
	}
	return nil
}

// change takes a change as a watch tells it.
func (s *source) change(text json.RawMessage, deleted bool) error {
	o, err := s.decode(text)
	s.overtaken = s.overtaken || o.key() == s.again
	if deleted && o.named() {
		s.remove(o.key())
		return nil
	}
	return s.put(o, err)
}

// remove forgets an object.
func (s *source) remove(key string) {
	s.changed = true
	s.total -= s.objects[key]
	delete(s.objects, key)
	delete(s.broken, key)
	s.drop(key)
}

// follow lists the resource and watches it until ctx ends.
func (s *source) follow(ctx context.Context, b *Books) {
	pause := minPause
	for version := ""; ctx.Err() == nil; {
		began := time.Now()
		var err error
		if version == "" {
			version, err = s.readAll(ctx, b)
		}
		if err == nil {
			version, err = s.watch(ctx, b, version)
		}
		if err == nil { // the watch has lasted for its time
			continue
		}
		if refused(err) || errors.Is(err, errTooMany) {
			version = ""
		}
		if time.Since(began) > maxPause {
			pause = minPause
		}
		wait := pause/2 + rand.N(pause)
		pause = min(2*pause, maxPause)
		b.mu.Lock()
		s.state, s.err = unread, err
		if kube.Is(err, http.StatusNotFound) && s.path == "" {
			s.state, wait = absent, absentAgain
		}
		if errors.Is(err, errTooMany) { // what is there is of no use
			for key := range maps.Clone(s.objects) {
				s.remove(key)
			}
			wait = absentAgain
		}
		b.mu.Unlock()
		if ctx.Err() == nil {
			b.opts.Log.Debug("reading a book failed", "resource", s.name, "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// refused reports whether the API server has refused a watch, so that the list is read again: the version is too old (410), or the resource is
// gone. It goes on where it was after a failure, and when it has to wait.
func refused(err error) bool {
	status, ok := errors.AsType[*kube.StatusError](err)
	return ok && status.Code != http.StatusTooManyRequests
}

// watch takes changes until the API server ends the watch.
func (s *source) watch(ctx context.Context, b *Books, version string) (last string, err error) {
	w, err := b.opts.API.Watch(ctx, s.path, s.query, version)
	if err != nil {
		return version, err
	}
	b.mu.Lock()
	s.state, s.err, s.changed = watched, nil, true
	b.mu.Unlock()
	return w.Each(func(text json.RawMessage, deleted bool) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		return s.change(text, deleted)
	})
}

// readAll reads all objects.
func (s *source) readAll(ctx context.Context, b *Books) (version string, err error) {
	before := make(map[string]bool)
	b.mu.Lock()
	delete(s.broken, "")
	maps.Copy(before, s.broken)
	for key := range maps.Keys(s.objects) {
		before[key] = true
	}
	b.mu.Unlock()
	found := ""
	for _, path := range s.paths {
		version, err = s.list(ctx, b.opts.API, path, func(o decoded, err error) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			delete(before, o.key())
			return s.put(o, err)
		})
		if !kube.Is(err, http.StatusNotFound) {
			found = path
			break
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.path = found; err != nil {
		return "", err
	}
	for key := range before { // it was deleted meanwhile
		s.remove(key)
	}
	return version, nil
}

// place is one object.
type place struct {
	of        *source
	key, path string
}

// place returns where an object of the source is, without a path if that is not known.
func (s *source) place(key string) place {
	namespace, name, namespaced := strings.Cut(key, "/")
	switch {
	case key == "" || s.path == "":
		return place{of: s, key: key}
	case !namespaced:
		return place{s, key, s.path + "/" + key}
	case strings.Contains(s.path, "/namespaces/"):
		return place{s, key, s.path + "/" + name}
	}
	resource := lastOf(s.path)
	return place{s, key, fmt.Sprintf("%snamespaces/%s/%s/%s", strings.TrimSuffix(s.path, resource), namespace, resource, name)}
}

// lastOf is the last part of a path, or of a key.
func lastOf(path string) string { return path[strings.LastIndex(path, "/")+1:] }

// get reads one object again, by its path. What a watch tells of it meanwhile is newer.
func (s *source) get(ctx context.Context, b *Books, key, path string) error {
	b.mu.Lock()
	s.again, s.overtaken = key, false
	b.mu.Unlock()
	text, err := b.opts.API.Get(ctx, path)
	b.mu.Lock()
	defer b.mu.Unlock()
	s.again = ""
	switch gone := kube.Is(err, http.StatusNotFound); {
	case s.overtaken:
		return nil
	case gone:
		s.remove(key)
		return nil
	case err != nil:
		return err
	}
	return s.change(text, false)
}
