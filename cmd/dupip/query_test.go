package main

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// Errors about arguments say what to do.
func TestWrongArguments(t *testing.T) {
	for args, want := range map[string]string{
		"conflicts --cluster --node n1":              "--cluster and --node exclude each other: give one of them",
		"conflicts --watch --exit-code":              "--watch and --exit-code exclude each other: give one of them",
		"bindings --watch --node n1":                 "--watch and --node exclude each other: give one of them",
		"explain":                                    "explain needs one IP address, or the name of one pod: dupip explain 10.0.0.1",
		"explain 10.0.0.1 10.0.0.2":                  "explain needs one IP address, or the name of one pod: dupip explain 10.0.0.1",
		"capture":                                    "capture needs one IP address, or the id of a conflict: dupip capture 10.0.0.1",
		"agent --bind 127.0.0.1 --gossip-port 70000": "--gossip-port 70000: a port is 1 to 65535",
		"agent --join n1":                            "gossip needs a key: make one (head -c 32 /dev/urandom | base64 > FILE) and give it to all nodes with --gossip-key-file",
		"agent --gossip-key-file k": "the agent is alone without --join or --bind: give one of them, " +
			"or leave out --cluster, --advertise and --gossip-key-file",
		"nodes n1":                        `"n1": dupip nodes takes no arguments; see "dupip nodes --help"`,
		"completion tcsh":                 `"tcsh": dupip completion has no such command; see "dupip completion --help"`,
		"completion bash now":             `"now": dupip completion bash takes no arguments; see "dupip completion bash --help"`,
		"conflicts -A -n shop":            "--all-namespaces and --namespace exclude each other: give one of them",
		"explain 10.0.0.300":              `"10.0.0.300": not an IP address`,
		"explain fd00::1::2":              `"fd00::1::2": not an IP address`,
		"explain 10.0.0.0/24":             `"10.0.0.0/24": not an IP address`,
		"conflicts --ip 10.0.0.1 --nodes": `unknown flag: --nodes; see "dupip conflicts --help"`,
	} {
		root := newRoot()
		root.SetArgs(strings.Fields(args))
		if err := root.Execute(); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}

func TestHelpFits(t *testing.T) {
	const columns = 60
	t.Setenv("COLUMNS", strconv.Itoa(columns))
	commands := []string{"", "config check"}
	for _, c := range newRoot().Commands() {
		commands = append(commands, c.Name())
	}
	for _, name := range commands {
		root, out := newRoot(), new(bytes.Buffer)
		root.SetOut(out)
		root.SetArgs(append(strings.Fields(name), "--help"))
		if err := root.Execute(); err != nil || out.Len() == 0 {
			t.Errorf("help of %q: %v", name, err)
		}
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > columns {
				t.Errorf("a line of %d columns:\n%s", n, line)
			}
		}
		if !strings.Contains(out.String(), "Examples:") {
			t.Errorf("no examples in the help of %q", name)
		}
	}
}

// The agent's DUPIP_CLUSTER is a name: in its container the other commands must not use it as
// their own flag.
func TestAgentsEnvironment(t *testing.T) {
	t.Setenv("DUPIP_CLUSTER", "prod")
	t.Setenv("DUPIP_API_SOCKET", t.TempDir()+"/none.sock")
	// These would be refused.
	t.Setenv("DUPIP_IP", "any")
	t.Setenv("DUPIP_SORT_BY", "any")
	t.Setenv("DUPIP_STATE", "any")
	for _, args := range [][]string{{"bindings"}, {"conflicts"}, {"explain", "10.0.0.1"}, {"capture", "10.0.0.1"}, {"nodes"}, {"status"}} {
		_, err := dupip(args...)
		if err == nil || !strings.Contains(err.Error(), "no agent is running at") {
			t.Errorf("%v: %v, want the error that no agent is running", args, err)
		}
	}
}

func TestFlagsThatExclude(t *testing.T) {
	for _, args := range [][]string{
		{"bindings", "--watch", "--cluster"},
		{"bindings", "--watch", "--node", "n1"},
		{"bindings", "--watch", "--sort-by", "ip"},
		{"bindings", "--sort-by", "colour"},
		{"conflicts", "--watch", "--state", "confirmed"},
		{"conflicts", "--cluster", "--node", "n1"},
		{"bindings", "--ip", "10.0.0"},
		{"status", "-o", "name"},
		{"explain", "10.0.0.1", "-o", "name"},
		{"bindings", "--ip", "10.0.0.0/33"},
	} {
		_, err := dupip(append(args, "--api-socket", t.TempDir()+"/none.sock")...)
		if err == nil || strings.Contains(err.Error(), "no agent is running") {
			t.Errorf("%v: %v, want it refused", args, err)
		}
	}
}

// dupip runs a command line in this process.
func dupip(args ...string) (string, error) {
	var out bytes.Buffer
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&out)
	ctx, end := context.WithTimeout(context.Background(), time.Minute) // of what should have been refused
	defer end()
	err := root.ExecuteContext(ctx)
	return out.String(), err
}

// The variable that Kubernetes sets for a Service called dupip-gossip is not --gossip-port.
func TestServicesVariable(t *testing.T) {
	t.Setenv("DUPIP_GOSSIP_PORT", "tcp://10.96.0.7:7951")
	cmd := newAgent()
	if err := fromEnvironment(cmd); err != nil || cmd.Flags().Changed("gossip-port") {
		t.Errorf("--gossip-port %s, %v", cmd.Flags().Lookup("gossip-port").Value, err)
	}
	t.Setenv("DUPIP_GOSSIP_PORT", "7000")
	if err := fromEnvironment(cmd); err != nil || cmd.Flags().Lookup("gossip-port").Value.String() != "7000" {
		t.Errorf("--gossip-port %s, %v", cmd.Flags().Lookup("gossip-port").Value, err)
	}
}

// Completion asks the agent that the variable names, as the command does.
func TestCompletionAsksTheAgent(t *testing.T) {
	path := t.TempDir() + "/other.sock"
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan struct{})
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(asked) })}
	go server.Serve(listener) //nolint:errcheck // it ends with the test
	defer server.Close()
	t.Setenv("DUPIP_API_SOCKET", path)
	_, _ = dupip("__complete", "explain", "")
	select {
	case <-asked:
	default:
		t.Error("another agent was asked")
	}
}
