package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dupip/dupip/cmd/internal/query"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

// A process of the tests with this variable is the plugin.
const asPlugin = "DUPIP_TEST_AS_PLUGIN"

func TestMain(m *testing.M) {
	if os.Getenv(asPlugin) != "" {
		os.Exit(run())
	}
	os.Exit(m.Run())
}

// script stands for kubectl, whose own part tests/cluster plays with a real one. It prints the list of pods, and forwards to a port
// unless the pod is called broken.
const script = `#!/bin/sh
echo "$@" >>"$DIR/calls"
case "$1" in
get) cat "$DIR/$2"; cat "$DIR/said" >&2; exit "$(cat "$DIR/code")" ;;
version) echo "{}" ;;
logs) cat "$DIR/log" ;;
exec) case "$*" in *--namespace=*" -- "*) ;; *) echo "Error from server (NotFound): pods not found" >&2; exit 1 ;; esac
	cat "$DIR/report-$2" || cat >&2 <<'END'
Error from server (Forbidden): pods "a" is forbidden: User "alice" cannot create resource "pods/exec" in API group "" in the namespace "dupip"
END
	exit 1 ;;
port-forward)
	case "$2" in
	pod/broken) echo "error: lost connection to pod" >&2; exit 1 ;;
	pod/forbidden) cat >&2 <<'END'
error: error upgrading connection: pods "forbidden" is forbidden: User "alice" cannot create resource "pods/portforward" in API group "" in the namespace "dupip"
END
	exit 1 ;;
	pod/mute) PORT=$MUTE ;;
	esac
	# Like a wrapper, which does not end with what it runs.
	sleep 1000 &
	echo $! >"$DIR/child"
	echo "Forwarding from 127.0.0.1:$PORT -> 9953"
	wait ;;
esac
`

// kubectl is a folder with such a script.
type kubectl struct {
	*testing.T
	dir    string
	silent bool // no agent answers the reporter
	leader string
}

func newKubectl(t *testing.T, pods string) *kubectl {
	k := &kubectl{T: t, dir: t.TempDir()}
	// What a reporter answers, and a port on which nobody does.
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != r.Context().Value(http.LocalAddrContextKey).(net.Addr).String() {
			t.Errorf("the host is %s", r.Host)
		}
		switch r.URL.Path {
		case "/v1/nodes":
			doc := nodes
			doc.Leader = k.leader
			_ = json.NewEncoder(w).Encode(doc)
		case "/v1/status":
			_ = json.NewEncoder(w).Encode(document.Status{Node: r.URL.Query().Get("node")})
		case "/v1/conflicts":
			if k.silent {
				w.WriteHeader(http.StatusServiceUnavailable)
				_ = json.NewEncoder(w).Encode(document.Error{Error: "no agent answers"})
				return
			}
			if r.URL.Query().Get("watch") != "" {
				fmt.Fprintln(w, "{}")
				w.(http.Flusher).Flush()
				<-r.Context().Done()
				return
			}
			_ = json.NewEncoder(w).Encode(conflicts(r.URL.RawQuery))
		case "/v1/audit":
			_ = json.NewEncoder(w).Encode(audits[r.URL.Query().Get("network")])
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	mute.Close()
	t.Setenv("DIR", k.dir)
	t.Setenv("PORT", port)
	t.Setenv("MUTE", fmt.Sprint(mute.Addr().(*net.TCPAddr).Port))
	t.Setenv("KUBECTL", filepath.Join(k.dir, "kubectl"))
	k.write("kubectl", script)
	k.says(pods, "", 0)
	return k
}

func (k *kubectl) says(pods, said string, code int) {
	k.Helper()
	k.write("pods", pods)
	k.write("said", said)
	k.write("code", strconv.Itoa(code))
}

func (k *kubectl) write(name, text string) {
	k.Helper()
	if err := os.WriteFile(filepath.Join(k.dir, name), []byte(text), 0o755); err != nil {
		k.Fatal(err)
	}
}

// dupip runs the plugin, and expects that it leaves no process.
func (k *kubectl) dupip(args ...string) (string, error) {
	k.Helper()
	var out bytes.Buffer
	p := new(plugin)
	root := p.root()
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&out)
	ctx, cancel := context.WithCancel(k.Context())
	err := root.ExecuteContext(ctx)
	cancel()
	p.kubectls.Wait()
	k.childless()
	return out.String(), err
}

// childless expects that what kubectl has started has ended.
func (k *kubectl) childless() {
	k.Helper()
	text, err := os.ReadFile(filepath.Join(k.dir, "child"))
	if err != nil {
		return // it has started nothing
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		k.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		// A zombie has ended: who started it is gone, and another process has to ask for it.
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) || bytes.Contains(stat, []byte(") Z ")) {
			return
		}
		if time.Now().After(deadline) {
			k.Fatalf("process %d is left: %s", pid, stat)
		}
	}
}

func pod(name, ready string) string {
	return fmt.Sprintf(`{"metadata": {"name": %q}, "status": {"conditions": [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": %q}]}}`, name, ready)
}

func list(pods ...string) string { return `{"items": [` + strings.Join(pods, ",") + `]}` }

var nodes = document.Nodes{Nodes: []document.Node{
	{Member: cluster.Member{Name: "n1", State: "alive", Version: "0.2.0"}, Interfaces: map[string]int{"attached": 3}, Findings: map[string]int{"conflict confirmed": 41}, Audit: document.AuditNothing, Reported: time.Unix(1, 0)},
	{Member: cluster.Member{Name: "n2", State: "alive", Version: "0.2.0"}, Interfaces: map[string]int{"attached": 2, "failed": 1}, Findings: map[string]int{"unreserved address": 4, "conflict confirmed": 41, "conflict suspected": 1}, Audit: document.AuditFindings, Reported: time.Unix(1, 0)},
	{Member: cluster.Member{Name: "n3", State: "suspect", Version: "0.1.0"}},
	{Member: cluster.Member{Name: "n4", State: "dead", Version: "0.1.0"}, Interfaces: map[string]int{"attached": 9}},
	{Member: cluster.Member{Name: "r1", State: "alive", Version: "0.2.0", Role: "reporter"}},
}}

// conflicts are 41 between two nodes, of which each has all of them, one on a node, and a drill.
func conflicts(network string) (d document.Conflicts) {
	on := func(nodes ...string) (holders []document.Binding) {
		for _, node := range nodes {
			holders = append(holders, document.Binding{Holder: document.Holder{Node: node, BootID: "b"}})
		}
		return holders
	}
	for n := range 41 {
		d.Conflicts = append(d.Conflicts, document.Conflict{IP: netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", n+1)), State: detector.Confirmed, Network: network, Holders: on("n2", "n1")})
	}
	d.Conflicts = append(d.Conflicts, document.Conflict{IP: netip.MustParseAddr("10.0.1.1"), State: detector.Suspected, Holders: on("n2", "n2")},
		document.Conflict{IP: netip.MustParseAddr("192.0.2.7"), State: detector.Confirmed, Drill: true, Holders: on("n1", "n3")})
	d.Coverage = document.Coverage{Asked: 3, Missing: []string{"n3"}, Partial: true}
	return d
}

// audits are what the audit of a network says.
var audits = map[string]document.Audit{
	"pods":  {Verdict: document.AuditAgrees},
	"lost":  {Verdict: document.AuditFindings, Findings: []document.Finding{{IP: netip.MustParseAddr("10.1.2.5"), Kind: "unreserved"}}},
	"":      {Verdict: document.AuditPartly, Unchecked: []string{"on node n2, everything"}},
	"other": {Verdict: document.AuditNothing},
	"old":   {},
}

// Only what was checked can end with 0.
func TestExitCodes(t *testing.T) {
	k := newKubectl(t, list(pod("r", "True")))
	for args, want := range map[string]query.ExitError{
		"audit --network pods": 0, "audit --network lost": 3, "audit": 4, "audit --network other": 4, "audit --network old": 4, "conflicts": 3,
	} {
		out, err := k.dupip(append(strings.Fields(args), "--exit-code")...)
		code, _ := errors.AsType[query.ExitError](err)
		if code != want || want == 0 && err != nil || strings.Contains(out, "No such finding.") != (want == 0) {
			t.Errorf("%s: %v, want %d\n%s", args, err, want, out)
		}
	}
}

// The first pod that is ready and answers is asked.
func TestChoice(t *testing.T) {
	leaving := strings.Replace(pod("leaving", "True"), `"metadata": {`, `"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", `, 1)
	k := newKubectl(t, list(pod("starting", "False"), leaving, pod("broken", "True"), pod("mute", "True"), pod("good", "True"), pod("other", "True")))
	out, err := k.dupip("conflicts", "-o", "json", "-n", "shop", "--context", "prod", "--as", "alice", "--as-group=a", "--as-group=b")
	// The query came as the network.
	if err != nil || !strings.Contains(out, "cluster=1") || !strings.Contains(out, "namespace=shop") {
		t.Errorf("%v, %s", err, out)
	}
	calls, _ := os.ReadFile(filepath.Join(k.dir, "calls"))
	const more = " --namespace=dupip --context=prod --as=alice --as-group=a --as-group=b\n"
	want := "get pods --selector=dupip.io/component=reporter --output=json" + more
	for _, name := range []string{"broken", "mute", "good"} {
		want += "port-forward pod/" + name + " :9953 --address=127.0.0.1" + more
	}
	if string(calls) != want {
		t.Errorf("the calls are\n%s, want\n%s", calls, want)
	}
}

// TestLeader: the reporter is asked that reads the books of the API server, if it answers.
func TestLeader(t *testing.T) {
	for leader, want := range map[string]string{"": "first", "first": "first", "last": "first last", "broken": "first broken first", "gone": "first"} {
		k := newKubectl(t, list(pod("first", "True"), pod("broken", "True"), pod("last", "True")))
		k.leader = leader
		if out, err := k.dupip("conflicts", "-o", "json"); err != nil {
			t.Errorf("%q leads: %v, %s", leader, err, out)
		}
		calls, _ := os.ReadFile(filepath.Join(k.dir, "calls"))
		var asked []string
		for line := range strings.Lines(string(calls)) {
			if _, after, ok := strings.Cut(line, "port-forward pod/"); ok {
				asked = append(asked, strings.Fields(after)[0])
			}
		}
		if got := strings.Join(asked, " "); got != want {
			t.Errorf("%q leads: %q, want %q", leader, got, want)
		}
	}
}

func TestErrors(t *testing.T) {
	k := newKubectl(t, list())
	for _, test := range []struct {
		pods, said string
		code       int
		want       string
	}{
		{list(), "", 0, "no reporter is in namespace dupip: install it (helm -n dupip upgrade dupip deploy/chart --reset-then-reuse-values --set reporter.enabled=true), or name dupip's namespace with --dupip-namespace"},
		{list(pod("a", "False"), pod("b", "False")), "", 0, `no reporter is ready, of 2 in namespace dupip: "kubectl -n dupip describe pods -l dupip.io/component=reporter" says why`},
		{
			"", `Error from server (Forbidden): pods is forbidden: User "a" cannot list resource "pods" in API group "" in the namespace "dupip"`, 1,
			`forbidden: you may not list pods in namespace dupip; deploy/README.md of dupip has a Role for "kubectl dupip"`,
		},
		{"", "E1123 memcache.go\nThe connection to the server 10.0.0.1 was refused\n", 1, "kubectl: The connection to the server 10.0.0.1 was refused"},
		{"", strings.Repeat("W1123 a warning\n", 2000) + "error: You must be logged in to the server\n", 1, "kubectl: You must be logged in to the server"},
		{"", "", 1, "kubectl: exit status 1"},
		{"<html>", "", 0, "reading kubectl's list of pods: invalid character '<' looking for beginning of value"},
		{
			list(pod("forbidden", "True"), pod("good", "True")), "", 0,
			`forbidden: you may not create pods/portforward in namespace dupip; deploy/README.md of dupip has a Role for "kubectl dupip"`,
		},
		{list(pod("broken", "True")), "", 0, "kubectl: lost connection to pod"},
	} {
		k.says(test.pods, test.said, test.code)
		if _, err := k.dupip("conflicts"); err == nil || err.Error() != test.want {
			t.Errorf("%v, want %s", err, test.want)
		}
	}
	t.Setenv("KUBECTL", "")
	t.Setenv("PATH", t.TempDir())
	if _, err := k.dupip("status"); err == nil || !strings.HasPrefix(err.Error(), "kubectl was not found") {
		t.Error(err)
	}
}

// Programs that read rows are told elsewhere what is missing, and those that read the document find it there.
func TestWhatIsMissing(t *testing.T) {
	k := newKubectl(t, list(pod("good", "True")))
	for args, want := range map[string]struct {
		begins string
		says   int
	}{
		"conflicts":                                     {"43 conflicts: ", 1},
		"conflicts -A --no-headers -o wide":             {"", 1},
		"conflicts -o name":                             {"10.0.0.1\n10.0.0.2\n", 1},
		"conflicts -o custom-columns=Address:.ip":       {"Address\n10.0.0.1\n10.0.0.2\n", 1},
		"conflicts -o jsonpath={.conflicts[3].ip}":      {"10.0.0.4", 0},
		"conflicts -o jsonpath={.missing[0]}":           {"n3", 0},
		"conflicts --no-headers -o json":                {"{", 0},
		"audit --no-headers":                            {"Not checked: on node n2, everything.\n", 0},
		"audit --network lost -o custom-columns=IP:.ip": {"IP\n10.1.2.5\n", 0},
	} {
		out, err := k.dupip(strings.Fields(args)...)
		if err != nil || !strings.HasPrefix(out, want.begins) || strings.Count(out, "1 of 3 nodes did not answer: n3") != want.says {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
	}
}

// What one agent has flags for, the plugin has not.
func TestArguments(t *testing.T) {
	k := newKubectl(t, list(pod("good", "True")))
	for _, args := range []string{"conflicts --cluster", "explain 10.0.0.1 --local", "bindings --watch", "status --api-socket x", "agent", "completion bash", "ui --port -1"} {
		if _, err := k.dupip(strings.Fields(args)...); err == nil {
			t.Errorf("%s is taken", args)
		}
	}
	if calls, err := os.ReadFile(filepath.Join(k.dir, "calls")); err == nil {
		t.Errorf("kubectl was called: %s", calls)
	}
	if _, err := k.dupip("explain"); err == nil || err.Error() != "explain needs one IP address, or the name of one pod: kubectl dupip explain 10.0.0.1" {
		t.Error(err)
	}
	for _, args := range []string{"", "conflicts", "bindings", "nodes", "explain", "capture", "status", "audit", "ui", "version", "doctor", "sysdump", "ack"} {
		out, err := k.dupip(append(strings.Fields(args), "--help")...)
		_, examples, _ := strings.Cut(out, "Examples:\n")
		examples, _, _ = strings.Cut(examples, "\n\n")
		if err != nil || !strings.HasPrefix(examples, "  kubectl dupip") || strings.Contains(out, "--cluster") || strings.Contains(out, "--local") ||
			strings.Contains(strings.ReplaceAll(examples, "kubectl dupip ", ""), "dupip ") {
			t.Errorf("%v, help of %s:\n%s", err, args, out)
		}
	}
}

func TestStatus(t *testing.T) {
	k := newKubectl(t, list(pod("good", "True")))
	const want = `Agents      2 alive; 1 dead (n4); 1 suspect (n3)
Versions    1 0.1.0 (n3); 2 0.2.0
Interfaces  5 attached; 1 failed (n2)
Findings    conflict confirmed: 41 (n1, n2); conflict suspected: 1 (n2);
            unreserved address: 4 (n2)
Audits      not checked: 1 (n1); with findings: 1 (n2)
Unknown     interfaces and findings of n3
1 of 3 nodes did not answer: n3; their conflicts are missing.
`
	if out, err := k.dupip("status"); err != nil || out != want {
		t.Errorf("%v, got\n%s, want\n%s", err, out, want)
	}
	k.silent = true
	const unknown = "Unknown     conflicts: no agent answers"
	if out, err := k.dupip("status"); err != nil || !strings.Contains(out, unknown) || !strings.Contains(out, "1 dead (n4)") || strings.Contains(out, "conflict confirmed") {
		t.Errorf("%v, got\n%s, want %s", err, out, unknown)
	}
	if out, err := k.dupip("status", "--node", "n7"); err != nil || !strings.HasPrefix(out, "Node        n7,") {
		t.Errorf("%v, %s", err, out)
	}
}

// What it prints has commands for the same namespace. The variable is there for the next command, too.
func TestNamespaceInCommands(t *testing.T) {
	k := newKubectl(t, list(pod("good", "True")))
	for _, test := range []struct{ variable, flag, want string }{
		{"", "", `"kubectl dupip explain 10.0.0.1"`},
		{"", "net", `"kubectl dupip --dupip-namespace net explain 10.0.0.1"`},
		{"net", "", `"kubectl dupip explain 10.0.0.1"`},
		{"net", "dupip", `"kubectl dupip --dupip-namespace dupip explain 10.0.0.1"`},
	} {
		t.Setenv("DUPIP_NAMESPACE", test.variable)
		args := []string{"conflicts"}
		if test.flag != "" {
			args = append(args, "--dupip-namespace", test.flag)
		}
		if out, err := k.dupip(args...); err != nil || !strings.Contains(out, test.want) {
			t.Errorf("%+v: %v, %s", test, err, out)
		}
	}
}

// What it prints has commands for the same cluster and user, which a shell takes as they were given.
func TestConnectionInCommands(t *testing.T) {
	k := newKubectl(t, list(pod("good", "True")))
	args := []string{"conflicts", "--dupip-namespace=net", "--as-group=a b", "--context", "it's $(prod)", "--kubeconfig=/a/b-1.yaml", "--as-group=c"}
	const want = `"kubectl dupip --dupip-namespace net --kubeconfig /a/b-1.yaml --context 'it'\''s $(prod)' --as-group 'a b' --as-group c explain 10.0.0.1"`
	out, err := k.dupip(args...)
	if flat := strings.Join(strings.Fields(out), " "); err != nil || !strings.Contains(flat, want) {
		t.Errorf("%v, %s", err, out)
	}
}

// Kubectl's completion finds the plugin by a second name. A node that is dead does not answer.
func TestCompletion(t *testing.T) {
	k := newKubectl(t, list(pod("good", "True")))
	cmd := exec.Command(os.Args[0], "status", "--node", "n")
	cmd.Args[0], cmd.Env = "kubectl_complete-dupip", append(os.Environ(), asPlugin+"=1")
	if out, err := cmd.Output(); err != nil || string(out) != "n1\nn2\nn3\n:4\n" {
		t.Errorf("%v, %q", err, out)
	}
	k.childless()
}

// The plugin ends when it is interrupted, and kubectl with it.
func TestInterrupted(t *testing.T) {
	for _, args := range []string{"ui", "ui --port 40001", "conflicts --watch"} {
		for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
			k := newKubectl(t, list(pod("good", "True")))
			cmd := exec.Command(os.Args[0], strings.Fields(args)...)
			cmd.Env = append(os.Environ(), asPlugin+"=1")
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			// Something is printed once it is connected.
			if _, err := out.Read(make([]byte, 1000)); err != nil {
				t.Error(err)
			}
			if err := cmd.Process.Signal(signal); err != nil {
				t.Error(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("%s, %v: %v", args, signal, err)
			}
			k.childless()
			_, port, _ := strings.Cut(args, "--port ")
			if calls, err := os.ReadFile(filepath.Join(k.dir, "calls")); err != nil || !strings.Contains(string(calls), "port-forward pod/good "+port+":9953 ") {
				t.Errorf("%s: %v, the calls are\n%s", args, err, calls)
			}
		}
	}
}
