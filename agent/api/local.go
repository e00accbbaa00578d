package api

import (
	"net"
	"net/http"
	"strings"
)

// LocalOnly passes on requests that programs of this machine made for this machine, and answers others with 403: a foreign site
// may have its own name resolve to 127.0.0.1 (DNS rebinding), or send a browser here. It sets the headers that bound what a browser
// does with any answer; a page for people allows more than the policy here.
func LocalOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		// Nothing is left on the disk. The script remembers the ETag itself.
		h.Set("Cache-Control", "no-store")
		switch {
		case !isLocal(r.Host):
			http.Error(w, "this is for localhost, 127.0.0.1 and [::1] only", http.StatusForbidden)
		case r.Header.Get("Sec-Fetch-Site") == "cross-site":
			http.Error(w, "another site led here: type the address into the browser instead", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// isLocal reports whether a Host header names this machine, with any port.
func isLocal(host string) bool {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	} else if strings.Trim(port, "0123456789") != "" {
		return false
	}
	switch strings.ToLower(name) {
	case "localhost", "127.0.0.1", "[::1]":
		return true
	case "::1": // SplitHostPort has removed the brackets
		return err == nil
	}
	return false
}
