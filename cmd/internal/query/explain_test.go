package query

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/document"
)

// asked is an agent that says what it was asked.
type asked struct {
	*testing.T
	bindings document.Bindings
	requests []string
}

func (a *asked) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.requests = append(a.requests, r.URL.Path+"?"+r.URL.RawQuery)
	var doc any = a.bindings
	if r.URL.Path == "/v1/explain" {
		doc = document.Explanation{IP: netip.MustParseAddr(r.URL.Query().Get("ip"))}
	}
	if err := json.NewEncoder(w).Encode(doc); err != nil {
		a.Error(err)
	}
}

// dupip runs a command that asks it, and returns what it prints and its requests.
func (a *asked) dupip(args ...string) (out string, requests []string, err error) {
	a.Helper()
	path := filepath.Join(a.TempDir(), "agent.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		a.Fatal(err)
	}
	server := &http.Server{Handler: a}
	go server.Serve(listener) //nolint:errcheck // it ends with the command
	defer server.Close()
	p := Program{Name: "dupip", Flags: func(*cobra.Command) {}, Client: func(*cobra.Command) (*api.Client, error) { return api.NewClient(path), nil }}
	root := p.Root(&cobra.Command{Use: "dupip"})
	var text bytes.Buffer
	root.SetArgs(args)
	root.SetOut(&text)
	root.SetErr(&text)
	a.requests = nil
	err = root.Execute()
	return text.String(), a.requests, err
}

func TestExplainPod(t *testing.T) {
	pod := func(namespace, name, ip, network string) document.Binding {
		return document.Binding{Network: network, IP: netip.MustParseAddr(ip), Holder: document.Holder{Pod: &document.Pod{Namespace: namespace, Name: name}}}
	}
	web, v6, again := pod("shop", "web", "10.0.0.9", "default"), pod("shop", "web", "fd00::9", "default"), pod("shop", "web", "10.0.0.9", "other")
	other := pod("stage", "web", "10.0.0.7", "default")
	missing := document.Coverage{Asked: 3, Missing: []string{"n3"}, Partial: true}
	for name, test := range map[string]struct {
		args     string
		bindings document.Bindings
		requests []string // after the word explain
		err      string
	}{
		"an address":   {"10.0.0.9", document.Bindings{}, []string{"/v1/explain?cluster=1&ip=10.0.0.9"}, ""},
		"of this node": {"fd00::9 --local", document.Bindings{}, []string{"/v1/explain?cluster=0&ip=fd00%3A%3A9"}, ""},
		"each address once, IPv4 first": {"shop/web", document.Bindings{Bindings: []document.Binding{v6, again, web}}, []string{
			"/v1/bindings?cluster=1&pod=shop%2Fweb", "/v1/explain?cluster=1&ip=10.0.0.9", "/v1/explain?cluster=1&ip=fd00%3A%3A9",
		}, ""},
		"on this node, of a namespace": {"web -n shop --local", document.Bindings{Bindings: []document.Binding{web}}, []string{
			"/v1/bindings?namespace=shop&pod=web", "/v1/explain?cluster=0&ip=10.0.0.9",
		}, ""},
		"two of a name": {"web", document.Bindings{Bindings: []document.Binding{other, web}}, []string{"/v1/bindings?cluster=1&pod=web"}, `"web": shop/web, stage/web have that name: say which`},
		"none":          {"web", document.Bindings{}, []string{"/v1/bindings?cluster=1&pod=web"}, `"web": neither an IP address nor a pod with an address that is seen; "dupip bindings" lists all`},
		"none, and a node is silent": {
			"web",
			document.Bindings{Coverage: missing},
			[]string{"/v1/bindings?cluster=1&pod=web"},
			`"web": no address of such a pod is seen; 1 of 3 nodes did not answer: n3; their pods are missing.`,
		},
		"no address": {"10.0.0", document.Bindings{}, nil, `"10.0.0": not an IP address`},
	} {
		a := &asked{T: t, bindings: test.bindings}
		_, requests, err := a.dupip(append([]string{"explain"}, strings.Fields(test.args)...)...)
		if got := strings.Join(requests, "\n"); got != strings.Join(test.requests, "\n") || err == nil && test.err != "" || err != nil && err.Error() != test.err {
			t.Errorf("%s: %v, asked\n%s", name, err, got)
		}
	}
	a := &asked{T: t, bindings: document.Bindings{Bindings: []document.Binding{web, v6}}}
	out, _, err := a.dupip("explain", "shop/web", "-o", "json")
	decoder, documents := json.NewDecoder(strings.NewReader(out)), 0
	for decoder.More() {
		var doc document.Explanation
		if err := decoder.Decode(&doc); err != nil {
			t.Fatal(err)
		}
		documents++
	}
	if err != nil || documents != 2 || strings.Count(out, "\n") != 2 {
		t.Errorf("as JSON, a document a line: %v\n%s", err, out)
	}
	if out, _, err = a.dupip("explain", "shop/web", "-o", "custom-columns=Address:.ip"); err != nil || out != "Address\n10.0.0.9\nfd00::9\n" {
		t.Errorf("columns: %v\n%s", err, out)
	}
	if out, _, err = a.dupip("__complete", "explain", ""); err != nil || !strings.HasPrefix(out, "10.0.0.9\nfd00::9\nshop/web\n:4\n") {
		t.Errorf("completion: %v\n%s", err, out)
	}
}
