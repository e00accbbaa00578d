package pods

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dupip/dupip/document"
)

// serve is an engine that answers a request for its containers so.
func serve(t *testing.T, answer func(w http.ResponseWriter, r *http.Request)) *engine {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "docker.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/_ping", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Api-Version", "1.41") })
	mux.HandleFunc("/v1.41/version", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"Version":"4.3.1\u001b[2J","Components":[{"Name":"Podman Engine"}]}`)
	})
	mux.HandleFunc("/v1.41/containers/json", answer)
	server := http.Server{Handler: mux}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Close() })
	e, err := newEngine(socket)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestEngine(t *testing.T) {
	e := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `[{"Id":%q,"Names":["/other/web","/w\u001b[2Jeb","/web"],"HostConfig":{"NetworkMode":"bridge"},
			"NetworkSettings":{"Networks":{"a":{"IPAddress":"10.0.0.2","IPPrefixLen":24,"GlobalIPv6Address":"fd00::2","GlobalIPv6PrefixLen":64},"b":{"IPAddress":"","GlobalIPv6Address":""},"c":null}}},
			{"Id":%q,"Names":null,"HostConfig":{"NetworkMode":"container:%s"}},
			{"Id":"abc"},{"Id":%q,"HostConfig":{"NetworkMode":"container:abc"},"Labels":{"io.kubernetes.docker.type":"podsandbox"}}]`, first, second, first, third)
	})
	got, err := e.list(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]running{
		first:  {name: "web", given: []netip.Prefix{netip.MustParsePrefix("10.0.0.2/24"), netip.MustParsePrefix("fd00::2/64")}},
		second: {in: first},
		third:  {isPod: true},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(running{}), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if want := (document.EngineStatus{Socket: e.status.Socket, Name: "podman", Version: "4.3.1?[2J", Containers: 3}); e.status != want {
		t.Errorf("status %+v, want %+v", e.status, want)
	}
}

// Whatever an engine answers, what is read of it is bounded, and an error is one printable line.
func TestHostileEngine(t *testing.T) {
	for name, answer := range map[string]func(http.ResponseWriter, *http.Request){
		"nothing": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"an error": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "{\"message\":\"no\x1b[2J\\u001b\n\"}", http.StatusInternalServerError)
		},
		"no list":      func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"Id":7}`) },
		"another kind": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `[{"Id":7}]`) },
		"no end": func(w http.ResponseWriter, r *http.Request) {
			for _, err := fmt.Fprint(w, "["); err == nil && r.Context().Err() == nil; {
				_, err = fmt.Fprint(w, strings.Repeat(" ", 1<<16))
			}
		},
		"many headers": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 1<<20))
			w.WriteHeader(200)
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := serve(t, answer)
			all, err := e.list(t.Context())
			if text := e.status.Error; err == nil || len(all) > 0 || text == "" || strings.ContainsAny(text, "\x1b\n") || len(text) > maxText {
				t.Errorf("error %v, %d containers, status %q", err, len(all), text)
			}
		})
	}
}

func TestManyContainers(t *testing.T) {
	e := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		for n := range maxContainers + 10 {
			fmt.Fprintf(w, `%c{"Id":"%064d"}`, "[,"[min(n, 1)], n)
		}
		fmt.Fprint(w, "]")
	})
	if all, err := e.list(t.Context()); err != nil || len(all) != maxContainers {
		t.Errorf("%d containers, error %v", len(all), err)
	}
}

func TestNoEngine(t *testing.T) {
	e, err := newEngine(filepath.Join(t.TempDir(), "docker.sock"))
	if err != nil {
		t.Fatal(err)
	}
	if all, err := e.list(t.Context()); err != nil || len(all) > 0 || e.status.Name+e.status.Error != "" {
		t.Errorf("%d containers, error %v, status %+v", len(all), err, e.status)
	}
}
