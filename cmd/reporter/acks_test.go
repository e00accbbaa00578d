package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/cmd/reporter/kube"
	"github.com/dupip/dupip/detector/cluster"
)

// TestAcks: agents are told of what is new or has changed, and of all of it again after a while; that the ConfigMap cannot be read is said once.
func TestAcks(t *testing.T) {
	status, data := http.StatusOK, map[string]string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/namespaces/dupip/configmaps/acks" {
			t.Errorf("it reads %s", r.URL)
		}
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]any{"data": data})
	}))
	defer server.Close()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("t"), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	var told []cluster.Query
	a := acks{
		log: slog.New(slog.NewTextHandler(&log, nil)), api: kube.New(server.URL, token, nil), namespace: "dupip", name: "acks",
		ask: func(_ context.Context, q cluster.Query, _ func(cluster.Member, []byte) error) ([]cluster.Member, error) {
			told = append(told, q)
			return nil, nil
		},
	}
	look := func(what string, want ...string) {
		t.Helper()
		told = nil
		a.look(t.Context())
		var got []string
		for _, q := range told {
			if q.Kind != cluster.QueryAck {
				t.Errorf("%s: agents are asked %+v", what, q)
			}
			got = append(got, strings.TrimSpace(q.IP.String()+" "+q.Only.Network)+" by "+q.Ack.By)
		}
		if strings.Join(got, ", ") != strings.Join(want, ", ") {
			t.Errorf("%s: they are told %q, want %q", what, got, want)
		}
	}
	said := func(ip, network, by string, ago time.Duration) string {
		return `{"ip":"` + ip + `","network":"` + network + `","by":"` + by + `","at":"` + time.Now().Add(-ago).UTC().Format(time.RFC3339) + `","seconds":3600}`
	}

	look("nobody has said anything")
	data["a"], data["b"] = said("10.0.0.1", "", "alice", time.Minute), said("10.0.0.2", "pods", "bob", 2*time.Hour)
	data["c"], data["d"] = "{", said("10.0.0.3", "pods", "carol", time.Minute)
	look("new", "10.0.0.1 by alice", "10.0.0.3 pods by carol")
	if age := told[0].Ack.Age; age < 60 || age > 60+60 {
		t.Errorf("it was said %d s ago, want 60", age)
	}
	look("nothing is new")
	status = http.StatusForbidden
	look("it must not read")
	look("it must not read")
	if n := strings.Count(log.String(), "who works on conflicts cannot be read"); n != 1 {
		t.Errorf("it is said %d times:\n%s", n, &log)
	}
	status, data["d"] = http.StatusOK, said("10.0.0.3", "pods", "dan", time.Minute)
	look("another one has it", "10.0.0.3 pods by dan")
	for s := range a.told {
		a.told[s] = a.told[s].Add(-toldAgain)
	}
	look("much later", "10.0.0.1 by alice", "10.0.0.3 pods by dan")
}
