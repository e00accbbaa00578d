package books

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dupip/dupip/cmd/reporter/kube"
)

// server is an API server with one resource, in the second of its API groups.
type server struct {
	mu       sync.Mutex
	objects  []string // names
	asked    []string
	code     int // of a refusal, 0 for none
	watching chan string
	ended    chan struct{} // ends a watch, when it is closed
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	s.mu.Lock()
	s.asked = append(s.asked, fmt.Sprintf("%s %s%s%s", r.URL.Path, q.Get("continue"), q.Get("resourceVersion"), map[bool]string{true: " watch"}[q.Has("watch")]))
	code, ended := s.code, s.ended
	s.mu.Unlock()
	switch {
	case r.URL.Path != "/second/things":
		w.WriteHeader(http.StatusNotFound)
	case code != 0:
		w.WriteHeader(code)
	case q.Has("watch"):
		w.(http.Flusher).Flush()
		for {
			select {
			case event := <-s.watching:
				fmt.Fprintln(w, event)
				w.(http.Flusher).Flush()
			case <-ended:
				return
			case <-r.Context().Done():
				return
			}
		}
	default:
		s.mu.Lock()
		defer s.mu.Unlock()
		half := s.objects[:len(s.objects)/2]
		more := "more"
		if q.Get("continue") != "" {
			half, more = s.objects[len(s.objects)/2:], ""
		}
		var items []string
		for _, name := range half {
			items = append(items, `{"metadata": {"name": "`+name+`"}}`)
		}
		fmt.Fprintf(w, `{"metadata": {"resourceVersion": "7", "continue": %q}, "items": [%s]}`, more, strings.Join(items, ","))
	}
}

// requests are the paths that were asked for, with the version or what continues a list.
func (s *server) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

// following is a source of that server while it is followed.
type following struct {
	*testing.T
	*server
	*source
	books *Books
	names map[string]bool
}

func follow(t *testing.T, s *server) *following {
	s.watching, s.ended = make(chan string), make(chan struct{})
	web := httptest.NewServer(s)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f := &following{T: t, server: s, names: make(map[string]bool), books: New(Options{Log: slog.New(slog.DiscardHandler), API: kube.New(web.URL, token, nil)})}
	f.source = newSource("things", []string{"/first/things", "/second/things"}, func(o *object) (int, error) {
		f.names[o.key()] = true
		return 1, nil
	}, func(key string) { delete(f.names, key) })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); f.follow(ctx, f.books) }()
	t.Cleanup(func() { cancel(); <-done; web.Close() })
	return f
}

// until waits until the source has these objects and this state.
func (f *following) until(state reading, names ...string) {
	f.Helper()
	var last string
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		f.books.mu.Lock()
		var have []string
		for name := range f.names {
			have = append(have, name)
		}
		slices.Sort(have)
		last = fmt.Sprintf("%d %q %v", f.state, have, f.err)
		ok := f.state == state && slices.Equal(have, names)
		f.books.mu.Unlock()
		if ok {
			return
		}
	}
	f.Fatalf("want %d %q, have %s", state, names, last)
}

// event is one of a watch.
func event(kind, name, version string) string {
	return fmt.Sprintf(`{"type": %q, "object": {"metadata": {"name": %q, "resourceVersion": %q}}}`, kind, name, version)
}

// TestFollow: a list in pages, changes, a watch that ends and goes on, and one whose version is too old.
func TestFollow(t *testing.T) {
	s := &server{objects: []string{"a", "b", "c", "d"}}
	f := follow(t, s)
	f.until(watched, "a", "b", "c", "d")
	s.watching <- event("ADDED", "e", "8")
	s.watching <- event("DELETED", "a", "9")
	s.watching <- event("MODIFIED", "b", "10")
	s.watching <- `{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "20"}}}`
	f.until(watched, "b", "c", "d", "e")

	s.mu.Lock()
	old := s.ended
	s.ended = make(chan struct{})
	s.mu.Unlock()
	close(old)
	for !slices.Contains(s.requests(), "/second/things 20 watch") { // from the bookmark on
		time.Sleep(time.Millisecond)
	}
	s.watching <- event("ADDED", "f", "21")
	f.until(watched, "b", "c", "d", "e", "f")
	s.mu.Lock()
	s.objects = []string{"c", "g"}
	s.mu.Unlock()
	s.watching <- `{"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}}`
	f.until(watched, "c", "g")
}

// TestRefused: a resource that may not be read, or does not exist, or has too many objects; and a right that comes later.
func TestRefused(t *testing.T) {
	f := follow(t, &server{code: http.StatusForbidden, objects: []string{"a", "b"}})
	f.until(unread)
	for f.problem() == nil {
		time.Sleep(time.Millisecond)
	}
	if err := f.problem(); !kube.Is(err, http.StatusForbidden) {
		t.Error(err)
	}
	f.mu.Lock()
	f.code = 0
	f.mu.Unlock()
	f.until(watched, "a", "b")

	none := follow(t, &server{code: http.StatusNotFound})
	none.until(absent)

	many := follow(t, &server{objects: []string{"a", "b", "c", "d"}})
	many.until(watched, "a", "b", "c", "d")
	many.books.mu.Lock()
	many.total = maxReservations
	many.books.mu.Unlock()
	many.watching <- event("ADDED", "e", "8")
	many.until(unread)
	if err := many.problem(); !errors.Is(err, errTooMany) {
		t.Error(err)
	}
}

// problem is why a source is not watched.
func (f *following) problem() error {
	f.books.mu.Lock()
	defer f.books.mu.Unlock()
	return f.err
}

// TestBrokenIsDeleted: an object that cannot be read does not count any more when it is deleted, whether a watch or the next list shows that.
func TestBrokenIsDeleted(t *testing.T) {
	w := newWorld(t)
	s := w.source(calicoPools)
	broken := json.RawMessage(`{"metadata": {"name": "p"}, "spec": {"cidr": "nothing"}}`)
	if err := s.change(broken, false); err != nil || !s.broken["p"] {
		t.Fatalf("%v, %v", s.broken, err)
	}
	if err := s.change(broken, true); err != nil || len(s.broken) > 0 {
		t.Errorf("deleted: %v, %v", s.broken, err)
	}
	_ = s.change(broken, false) // as before
	s.list = func(context.Context, *kube.Client, string, func(decoded, error) error) (string, error) {
		return "8", nil
	}
	if _, err := s.readAll(t.Context(), w.Books); err != nil || len(s.broken) > 0 {
		t.Errorf("not listed: %v, %v", s.broken, err)
	}
}
