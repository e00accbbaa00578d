package doctor

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/dupip/dupip/agent"
	"github.com/dupip/dupip/agent/notify"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/internal/testneeds"
)

func TestAlertmanagers(t *testing.T) {
	if os.Geteuid() == 0 { // in a netns of its own
		if err := loopbackUp(); err != nil {
			t.Fatal(err)
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Method != http.MethodGet || q.URL.Path != "/am/api/v2/status" {
			http.Error(w, "nothing here", http.StatusNotFound)
		}
	}))
	defer server.Close()
	known := func(o notify.Options) *facts { return &facts{opts: Options{Options: agent.Options{Notify: o}}} }
	want(t, "alertmanager", known(notify.Options{}), Skip, "no --alertmanager")
	want(t, "alertmanager", known(notify.Options{Alertmanagers: []string{server.URL + "/am/"}}), OK, "1 Alertmanager answers")
	want(t, "alertmanager", known(notify.Options{Alertmanagers: []string{server.URL + "/am", server.URL}}), Warn, "404 Not Found", "nothing here", "--alertmanager")
	want(t, "alertmanager", known(notify.Options{Alertmanagers: []string{server.URL + "/am"}, HTTPConfig: "/nowhere"}), Warn, "/nowhere: no such file")
}

func TestProgram(t *testing.T) {
	testneeds.Root(t)
	path := filepath.Join(t.TempDir(), "tell")
	if err := os.WriteFile(path, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	known := func(o notify.Options, err string) *facts {
		return &facts{opts: Options{Options: agent.Options{Notify: o}}, status: &document.Status{Notifications: []document.NotificationStatus{{Kind: "program", To: path, Error: err}}}}
	}
	want(t, "on conflict", known(notify.Options{}, ""), Skip, "no --on-conflict")
	want(t, "on conflict", known(notify.Options{Program: path}, ""), OK, path)
	want(t, "on conflict", known(notify.Options{Program: path}, "exit status 3"), Warn, "exit status 3", "log")
	want(t, "on conflict", known(notify.Options{Program: path + "2"}, ""), Fail, path+"2: no such file")
	want(t, "on conflict", known(notify.Options{Program: path, User: "no-such-user"}, ""), Fail, "no such user")
}
