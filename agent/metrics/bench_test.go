package metrics

import (
	"net/http"
	"testing"
)

// BenchmarkScrape makes the page of a node with 250 interfaces, all of which were refused
// packets, and 100 open conflicts. The sources cost nothing here.
func BenchmarkScrape(b *testing.B) {
	sources := rich()
	sources.Interfaces = answering(InterfaceStats{States: map[string]int{"attached": 250}, Observed: refusing(250)})
	sources.Detector = answering(DetectorStats{Open: manyConflicts(100)})
	m := New(sources)
	handler := m.Handler(nil, nil)
	request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "/metrics", nil)
	if err != nil {
		b.Fatal(err)
	}
	var size int
	b.ReportAllocs()
	for b.Loop() {
		var page buffer
		handler.ServeHTTP(&page, request)
		size = page.body.Len()
	}
	b.ReportMetric(float64(size), "B/page")
}
