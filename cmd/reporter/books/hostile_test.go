package books

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime/metrics"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/cmd/reporter/kube"
)

// hostileBlocks are what one object can be, of the 1.5 MB that the API server takes at most: it decodes to much more.
var hostileBlocks = map[string]string{
	"attributes":  `"allocations": [0], "attributes": [` + strings.Repeat("{},", 450_000) + `{}]`,
	"allocations": `"allocations": [` + strings.Repeat("1,", 700_000) + `1], "attributes": []`,
	"unallocated": `"allocations": [], "unallocated": [` + strings.Repeat("1,", 700_000) + `1]`,
	"keys":        `"allocations": [0], "attributes": [{"secondary": {` + manyKeys(100_000) + `}}]`,
}

func manyKeys(n int) string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf(`"%x":""`, i)
	}
	return strings.Join(keys, ",")
}

// blockText is a block of Calico as the API server sends it.
func blockText(n int, rest string) string {
	return fmt.Sprintf(`{"metadata": {"name": "block-%d", "uid": "u"}, "spec": {"cidr": "10.%d.%d.%d/26", "affinity": "host:n1", %s}}`, n, n>>10&255, n>>2&255, n&3<<6, rest)
}

// allocated1 is a block with one reservation.
const allocated1 = `"allocations": [0], "attributes": [{"handle_id": "h", "secondary": {"namespace": "shop", "pod": "a", "node": "n1"}}], "unallocated": []`

// BenchmarkHostileBlock is what it costs to take one such object.
func BenchmarkHostileBlock(b *testing.B) {
	for name, rest := range hostileBlocks {
		b.Run(name, func(b *testing.B) {
			w, text := newWorld(b), json.RawMessage(blockText(1, rest))
			b.ReportAllocs() // nothing of it is kept
			for b.Loop() {
				if err := w.source(calicoBlocks).change(text, false); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// lister is an API server with so many blocks, of which it sends pages.
type lister struct {
	blocks, requests int
	rest             func(n int) string
}

func (l *lister) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.requests++
	q := r.URL.Query()
	first, _ := strconv.Atoi(q.Get("continue"))
	limit, _ := strconv.Atoi(q.Get("limit"))
	last, more := first+limit, strconv.Itoa(first+limit)
	if last >= l.blocks {
		last, more = l.blocks, ""
	}
	_, _ = fmt.Fprintf(w, `{"metadata": {"resourceVersion": "7", "continue": %q}, "items": [`, more)
	for n := first; n < last; n++ {
		if n > first {
			_, _ = io.WriteString(w, ",")
		}
		_, _ = io.WriteString(w, blockText(n, l.rest(n)))
	}
	_, _ = io.WriteString(w, "]}")
}

// read lets a reporter read the blocks, and returns the most memory that was in use, in MB.
func (l *lister) read(tb testing.TB) (most float64, err error) {
	web := httptest.NewServer(l)
	defer web.Close()
	token := filepath.Join(tb.TempDir(), "token")
	if err := os.WriteFile(token, nil, 0o600); err != nil {
		tb.Fatal(err)
	}
	b := New(testOptions(kube.New(web.URL, token, nil)))
	b.reset()
	before := heap()
	done, measured := make(chan struct{}), make(chan float64)
	go func() {
		ticks := time.NewTicker(time.Millisecond)
		defer ticks.Stop()
		most, memory := 0.0, []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		for {
			select {
			case <-done:
				measured <- most
				return
			case <-ticks.C:
				metrics.Read(memory)
				most = max(most, float64(memory[0].Value.Uint64())/(1<<20))
			}
		}
	}()
	for _, s := range b.sources() {
		if s.name == calicoBlocks {
			_, err = s.readAll(tb.Context(), b)
		}
	}
	close(done)
	return <-measured - before, err
}

// BenchmarkTooMany is what a million blocks cost until the reporter gives up, and 20 of the hostile ones. The memory includes what waits for the
// garbage collector.
func BenchmarkTooMany(b *testing.B) {
	b.Run("blocks", func(b *testing.B) {
		for b.Loop() {
			l := &lister{blocks: 1_000_000, rest: func(int) string { return allocated1 }}
			most, err := l.read(b)
			if !errors.Is(err, errTooMany) {
				b.Fatal(err)
			}
			b.ReportMetric(most, "MB-most")
			b.ReportMetric(float64(l.requests), "requests")
		}
	})
	for name, rest := range hostileBlocks {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				l := &lister{blocks: 1000, rest: func(n int) string {
					if n >= 400 && n < 420 {
						return rest
					}
					return allocated1
				}}
				most, err := l.read(b)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(most, "MB-most")
				b.ReportMetric(float64(l.requests), "requests")
			}
		})
	}
}
