package notify

import (
	"bytes"
	"context"
	"encoding/pem"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The password and the authority are in files, which are read again. Redirects are not followed.
func TestClientConfiguration(t *testing.T) {
	requests := 0
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		requests++
		name, password, _ := q.BasicAuth()
		switch {
		case name != "dupip" || password != "right":
			http.Error(w, "no\x1b[31m entry\n"+strings.Repeat("x", 1<<20), http.StatusUnauthorized)
		case strings.HasPrefix(q.URL.Path, "/moved/"):
			http.Redirect(w, q, "/api/v2/status", http.StatusFound)
		}
	}))
	defer server.Close()
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file("ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	file("password", "wrong")
	c := &client{path: file("http.yaml", "basic_auth: {username: dupip, password_file: password}\ntls_config: {ca_file: ca.pem}\n")}
	try := func(url string) string {
		t.Helper()
		if err := request(t.Context(), c, http.MethodPost, url+"/api/v2/alerts", []byte("[]")); err != nil {
			return reason(err)
		}
		return ""
	}
	if got := try(server.URL); !strings.Contains(got, "401 Unauthorized: no") || strings.ContainsAny(got, "\n\x1b") || len(got) > maxError {
		t.Errorf("with a wrong password: %q", got)
	}
	file("password", "right")
	if got := try(server.URL); got != "" {
		t.Errorf("with the right password: %s", got)
	}
	if got := try(server.URL + "/moved"); !strings.Contains(got, "302 Found") {
		t.Errorf("a redirect: %q", got)
	}
	if err := CheckAlertmanager(t.Context(), server.URL, c.path); err != nil {
		t.Error(err)
	}
	before := requests
	for text, want := range map[string]string{
		"basic_auth: {username: dupip}\ntls_config: {ca_file: missing.pem}\n": "missing.pem",
		"passwords: 1\n": "http.yaml",
		"secret\n":       "http.yaml: yaml: unmarshal errors: line 1: cannot unmarshal !!str … into",
		"basic_auth: {username: dupip, password_file: none}\ntls_config: {ca_file: ca.pem}\n": "none: no such file",
		"": "certificate",
	} {
		file("http.yaml", text)
		if got := try(server.URL); !strings.Contains(got, want) {
			t.Errorf("with %q: %q, want %q", text, got, want)
		}
	}
	if requests != before {
		t.Errorf("%d requests with a broken configuration", requests-before)
	}
	if err := os.Remove(c.path); err != nil {
		t.Fatal(err)
	}
	if got := try(server.URL); !strings.Contains(got, "no such file") {
		t.Errorf("without the file: %q", got)
	}
}

// The log has one line when an Alertmanager refuses alerts, and one when it takes them again.
func TestRefusedIsLoggedOnce(t *testing.T) {
	refuse := make(chan bool, 8)
	done := make(chan bool)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if <-refuse {
			http.Error(w, "bad", http.StatusBadRequest)
		}
		done <- true
	}))
	defer server.Close()
	var log bytes.Buffer
	r := newReceiver(slog.New(slog.NewTextHandler(&log, nil)), &client{}, server.URL)
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan bool)
	go func() { r.run(ctx); close(stopped) }()
	defer func() { cancel(); <-stopped }()
	for _, refused := range []bool{true, true, false, false} {
		refuse <- refused
		before := r.status()
		r.offer([]posted{{Labels: map[string]string{"alertname": "x"}, StartsAt: time.Now(), EndsAt: time.Now()}})
		<-done
		for r.status() == before { // counted after the answer
			time.Sleep(time.Millisecond)
		}
	}
	if s := r.status(); s.Sent != 2 || s.Failed != 2 {
		t.Errorf("%+v", s)
	}
	if n := strings.Count(log.String(), "\n"); n != 2 {
		t.Errorf("%d lines:\n%s", n, log.String())
	}
}

func TestCheck(t *testing.T) {
	for want, o := range map[string]Options{
		"":                     {Alertmanagers: []string{"http://a:9093", "https://[::1]/prefix/"}, HTTPConfig: "/etc/a.yaml", Program: "/bin/tell", User: "nobody"},
		"must be a URL":        {Alertmanagers: []string{"alertmanager:9093"}},
		"password in a URL":    {Alertmanagers: []string{"http://me:secret@a:9093"}},
		"8 are possible":       {Alertmanagers: make([]string, 9)},
		"give --alertmanager":  {HTTPConfig: "/etc/a.yaml"},
		"absolute path":        {Program: "tell"},
		"file only":            {Program: "/bin/tell --loud/../x"},
		"give --on-conflict, ": {User: "nobody"},
	} {
		err := o.Check()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
}
