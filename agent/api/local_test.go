package api

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// Only requests of this machine's browsers for this machine are answered, and no answer may be framed, sniffed or kept.
func TestLocalOnly(t *testing.T) {
	handler := LocalOnly(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	for _, test := range []struct {
		host, site string
		want       int
	}{
		{"localhost", "", http.StatusTeapot},
		{"LOCALHOST:8080", "same-origin", http.StatusTeapot},
		{"127.0.0.1", "none", http.StatusTeapot},
		{"127.0.0.1:1", "", http.StatusTeapot},
		{"[::1]", "", http.StatusTeapot},
		{"[::1]:65535", "", http.StatusTeapot},
		{"", "", http.StatusForbidden},
		{"::1", "", http.StatusForbidden},
		{"127.0.0.2:80", "", http.StatusForbidden},
		{"localhost.evil.example", "", http.StatusForbidden},
		{"evil.example:8080", "", http.StatusForbidden},
		{"127.0.0.1.nip.io", "", http.StatusForbidden},
		{"127.0.0.1:80@evil.example", "", http.StatusForbidden},
		{"localhost:8080", "cross-site", http.StatusForbidden},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = test.host
		if test.site != "" {
			r.Header.Set("Sec-Fetch-Site", test.site)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != test.want {
			t.Errorf("Host %q, %q: %d, want %d", test.host, test.site, w.Code, test.want)
		}
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
			"X-Content-Type-Options":  "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
		} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("Host %q: %s is %q, want %q", test.host, name, got, want)
			}
		}
	}
}
