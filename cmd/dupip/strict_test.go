package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// refusedFlags are flags with which no agent starts, and what the error says. They are refused before the agent asks for
// root and opens anything.
var refusedFlags = map[string]string{
	"--min-overlap=0":                   "--min-overlap 0s: must be 10ms to 1m",
	"--min-overlap=-1s":                 "--min-overlap -1s: must be 10ms to 1m",
	"--min-overlap=1ns":                 "--min-overlap 1ns: must be 10ms to 1m",
	"--min-overlap=61s":                 "--min-overlap 1m1s: must be 10ms to 1m",
	"--min-overlap=2000000h":            "--min-overlap 2000000h0m0s: must be 10ms to 1m",
	"--unheld-after=0":                  "--unheld-after 0s: must be 1s to 24h",
	"--unheld-after=25h":                "--unheld-after 25h0m0s: must be 1s to 24h",
	"--replicas=0":                      "--replicas 0: must be 1 to 16",
	"--replicas=-1":                     "--replicas -1: must be 1 to 16",
	"--replicas=100":                    "--replicas 100: must be 1 to 16",
	"--gossip-port=0":                   "--gossip-port 0: a port is 1 to 65535",
	"--gossip-port=65536":               "--gossip-port 65536: a port is 1 to 65535",
	"--node-name=":                      "--node-name is empty: give it a value, or leave it out",
	"--node-name=a b":                   `--node-name "a b": must be 1 to 253 letters, digits and . _ -, the first and the last a letter or a digit`,
	"--node-name=$(reboot)":             `--node-name "$(reboot)": must be 1 to 253 letters, digits and . _ -, the first and the last a letter or a digit`,
	"--join=":                           "--join is empty: give it a value, or leave it out",
	"--bind=":                           "--bind is empty: give it a value, or leave it out",
	"--state-dir=":                      "--state-dir is empty: give it a value, or leave it out",
	"--metrics-listen=":                 "--metrics-listen is empty: give it a value, or leave it out",
	"--api-socket=dupip.sock":           `--api-socket "dupip.sock": must be an absolute path`,
	"--api-socket=@dupip":               `--api-socket "@dupip": must be an absolute path`, // anybody could connect
	"--state-dir=state":                 `--state-dir "state": must be an absolute path`,
	"--cni-conf-dir=none":               `--cni-conf-dir "none": must be an absolute path, or auto, or off`,
	"--capture=":                        "--capture is empty: give it a value, or leave it out",
	"--alertmanager=a:9093":             `--alertmanager "a:9093": must be a URL such as http://alertmanager.example:9093, without /api/v2/alerts`,
	"--on-conflict=tell":                `--on-conflict "tell": must be an absolute path, of a file only`,
	"--on-conflict-user=nobody":         "--on-conflict-user says as whom a program runs: give --on-conflict, too",
	"--alertmanager-http-config=/a":     "--alertmanager-http-config says how to reach an Alertmanager: give --alertmanager, too",
	"--capture=no":                      `--capture "no": must be on or off`,
	"--configured-evidence=no":          `--configured-evidence "no": must be on or off`,
	"--metrics-holders=yes":             `--metrics-holders "yes": must be on or off`,
	"--attach=":                         "--attach is empty: give it a value, or leave it out",
	"--attach=ebpf":                     `--attach: unknown attach mode "ebpf": use auto, tcx, tc or xdp`,
	"--log-level=info+4":                `--log-level "info+4": must be debug, info, warn or error`,
	"--log-format=xml":                  `--log-format "xml": must be text or json`,
	"--cluster=prod\n":                  `--cluster "prod\n": at most 64 printable ASCII characters, without a space or line break at the ends`,
	"--bind=eth0":                       `--bind "eth0" is not an address of a node, such as 10.0.0.1; the port has a flag of its own, --gossip-port`,
	"--bind=10.0.0.1:7951":              `--bind "10.0.0.1:7951" is not an address of a node, such as 10.0.0.1; the port has a flag of its own, --gossip-port`,
	"--bind=224.0.0.1":                  `--bind "224.0.0.1" is not an address of a node, such as 10.0.0.1; the port has a flag of its own, --gossip-port`,
	"--join=10.0.0.256":                 `--join "10.0.0.256": it is neither an address nor a name, with :PORT or without`,
	"--join=n1,,n2":                     `--join "": it is neither an address nor a name, with :PORT or without`,
	"--join=n1:0":                       `--join "n1:0": its port is not one from 1 to 65535`,
	"--join=0.0.0.0":                    `--join "0.0.0.0": 0.0.0.0 is not the address of one node`,
	"--advertise=0.0.0.0":               `--advertise "0.0.0.0": 0.0.0.0 is not the address of one node`,
	"--advertise=10.0.0":                `--advertise "10.0.0": it is neither an address nor a name, with :PORT or without`,
	"--join=10.0.0.2 --advertise=::1":   `--advertise "::1": the agent at --join "10.0.0.2" cannot reach that; give an address of this node that others reach`,
	"--advertise=127.0.0.1 --join=fd::": `--advertise "127.0.0.1": the agent at --join "fd::" cannot reach that; give an address of this node that others reach`,
}

func TestAgentRefusesFlags(t *testing.T) {
	for text, want := range refusedFlags {
		args := []string{text}
		if strings.Contains(text, " --") {
			args = strings.Fields(text)
		}
		// The doctor refuses what the agent does. Neither gets far: there is no such file.
		for _, command := range []string{"agent", "doctor"} {
			_, err := dupip(append([]string{command, "--config=/nowhere"}, args...)...)
			if err == nil || err.Error() != want {
				t.Errorf("%s %q: %v, want %s", command, args, err, want)
			}
		}
	}
}

// The limits themselves, and what looks wrong, are valid.
func TestAgentTakesFlags(t *testing.T) {
	for _, text := range []string{
		"", "--min-overlap=10ms", "--min-overlap=1m", "--unheld-after=1s", "--unheld-after=24h", "--replicas=1", "--replicas=16",
		"--gossip-port=1", "--gossip-port=65535", "--node-name=ip-10-0-0-1.EU_1.internal", "--node-name=10.0.0.1", "--node-name=a",
		"--cni-conf-dir=off", "--cluster=a: b", "--bind=::", "--bind=0.0.0.0", "--join=dupip.kube-system", "--join=[fd00::1]:80,n2:7",
		"--advertise=127.0.0.1 --join=127.0.0.2", "--advertise=127.0.0.1 --join=n2", "--advertise=n1:80", "--log-level=DEBUG", "--config=dupip.yaml",
	} {
		var f agentFlags
		cmd := &cobra.Command{}
		f.addTo(cmd)
		args := []string{text}
		if text == "" || strings.Contains(text, " --") {
			args = strings.Fields(text)
		}
		if err := cmd.ParseFlags(args); err != nil {
			t.Fatal(err)
		}
		if err := f.check(io.Discard, cmd.Flags()); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// The doctor takes all flags of the agent, with the same descriptions and defaults.
func TestDoctorHasTheAgentsFlags(t *testing.T) {
	usages := make(map[string]map[string]string)
	for _, c := range newRoot().Commands() {
		usages[c.Name()] = make(map[string]string)
		c.Flags().VisitAll(func(flag *pflag.Flag) { usages[c.Name()][flag.Name] = flag.Usage + " " + flag.DefValue })
	}
	delete(usages["doctor"], "output")
	if diff := cmp.Diff(usages["agent"], usages["doctor"]); diff != "" || len(usages["agent"]) < 20 {
		t.Errorf("(-agent +doctor):\n%s", diff)
	}
}

func TestUnknownVariables(t *testing.T) {
	warning := func(name, nearest string) string {
		return "dupip: warning: the environment variable " + name + " is ignored: no setting has that name; the nearest is " + nearest + "\n"
	}
	for _, test := range []struct {
		environment, want string
	}{
		{"", ""},
		{"DUPIP_MIN_OVERLAP=1s DUPIP_CLUSTER=prod DUPIP_JOIN= PATH=/bin DUPIPE=1 dupip_join=x", ""},
		{"DUPIP_MIN_OVERLP=1s", warning("DUPIP_MIN_OVERLP", "DUPIP_MIN_OVERLAP")},
		{"DUPIP_NODENAME=a", warning("DUPIP_NODENAME", "DUPIP_NODE_NAME")},
		{"DUPIP_JION=a DUPIP_ADVERTIZE=secret", warning("DUPIP_ADVERTIZE", "DUPIP_ADVERTISE") + warning("DUPIP_JION", "DUPIP_JOIN")},
		{"DUPIP_REPLICA\x1b[2J=3", warning("DUPIP_REPLICA?[2J", "DUPIP_REPLICAS")},
		// What Kubernetes sets for the Services dupip, dupip-ui and dupip-gosip in the pod's namespace.
		{"DUPIP_SERVICE_HOST=10.96.0.1 DUPIP_SERVICE_PORT=80 DUPIP_SERVICE_PORT_GOSSIP=7951 DUPIP_PORT=tcp://10.96.0.1:80 DUPIP_PORT_7951_TCP=tcp://10.96.0.1:7951 " +
			"DUPIP_PORT_7951_TCP_PROTO=tcp DUPIP_PORT_7951_TCP_PORT=7951 DUPIP_PORT_7951_TCP_ADDR=10.96.0.1 DUPIP_PORT_7951_UDP_ADDR=10.96.0.1", ""},
		{"DUPIP_UI_SERVICE_HOST=10.96.0.2 DUPIP_UI_SERVICE_PORT=80 DUPIP_UI_PORT=tcp://[fd00::1]:80 DUPIP_UI_PORT_80_TCP_ADDR=10.96.0.2 DUPIP_GOSIP_PORT=udp://10.96.0.1:80", ""},
		{"DUPIP_GOSIP_PORT=7951", warning("DUPIP_GOSIP_PORT", "DUPIP_GOSSIP_PORT")},
		{"DUPIP_TEST_SLOW=1 DUPIP_TEST_BIN=/bin/dupip", ""},
		{
			"DUPIP_G1=1 DUPIP_G2= DUPIP_G3= DUPIP_G4= DUPIP_G5= DUPIP_G6= DUPIP_G7=",
			"dupip: warning: 2 more environment variables that begin with DUPIP_ are ignored\n",
		},
	} {
		var out bytes.Buffer
		warnUnknown(&out, newRoot(), strings.Fields(test.environment))
		if got := out.String(); got != test.want && (strings.Count(got, "\n") != maxUnknown+1 || !strings.HasSuffix(got, test.want)) {
			t.Errorf("%s (-want +got):\n%s", test.environment, cmp.Diff(test.want, got))
		}
	}
	var out bytes.Buffer
	warnUnknown(&out, newRoot(), []string{"DUPIP_" + strings.Repeat("X", 1<<20) + "=1"})
	if out.Len() > 300 {
		t.Errorf("%d bytes about a long name", out.Len())
	}
}

// Every command warns, on standard error and without failing.
func TestUnknownVariableIsNoError(t *testing.T) {
	t.Setenv("DUPIP_OUTPUTS", "json")
	out, err := dupip("version")
	if err != nil || !strings.Contains(out, "DUPIP_OUTPUTS is ignored") || !strings.Contains(out, "\ndupip ") {
		t.Errorf("%v, %q", err, out)
	}
}

func TestConfigCheck(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write("good.yaml", "networks: [{name: storage, solicit: off, match: {peers: [net1]}}, {name: net1@br1}]\n"+
		"shared: [10.0.0.53, 10.96.0.0/12]\nexclusive: [203.0.113.0/24]\nsegments: {ask: off}\nignore: {interfaces: [\"veth-test*\"]}\nlimits: {bindings: 1000}\n")
	bad := write("bad.yaml", "shared:\n  - 10.0.0.1/8\nlimit: {}\n")
	empty := write("empty.yaml", "")
	const limits = "limits              1000 bindings, 256 for one interface; 1000 resolved\n                    conflicts; 1000 verifying and 100 refreshing probes a second\n"
	const said = ": OK\nnetworks            storage (one in the cluster, not probed), net1@br1 (one on\n                    each node)\n" +
		"shared              10.0.0.53, 10.96.0.0/12\nexclusive           203.0.113.0/24\nsegments            not asked; not inferred\nignored interfaces  veth-test*\n" + limits
	text, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ file, stdin, want, wantErr string }{
		{good, "", good + said, ""},
		{"-", string(text), "standard input" + said, ""},
		{empty, "", empty + ": OK\nnetworks            none\nshared              none\nexclusive           none\nsegments            asked; inferred\nignored interfaces  none\n" + strings.Replace(limits, "1000 b", "65536 b", 1), ""},
		{bad, "", "", bad + `: line 2: shared[0]: "10.0.0.1/8" has bits set after the prefix; write 10.0.0.0/8 for the whole of it, or 10.0.0.1/32 for the address alone` +
			"\n" + bad + `: line 3: unknown key "limit"; the keys here are networks, shared, exclusive, segments, ignore, limits`},
		{"-", "shared: x", "", "standard input: line 1: shared: `x` is not a list; write one entry per line, each after a -"},
		{dir, "", "", dir + ": is not a regular file; name one"},
		{filepath.Join(dir, "none"), "", "", "stat " + filepath.Join(dir, "none") + ": no such file or directory"},
		{"", "", "", "config check needs one file, or - for the standard input: dupip config check dupip.yaml"},
	} {
		root, out := newRoot(), new(bytes.Buffer)
		root.SetArgs([]string{"config", "check", test.file})
		root.SetIn(strings.NewReader(test.stdin))
		root.SetOut(out)
		err := root.Execute()
		if diff := cmp.Diff(test.want, out.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.file, diff)
		}
		if test.wantErr == "" && err != nil || test.wantErr != "" && (err == nil || err.Error() != test.wantErr) {
			t.Errorf("%s: %v, want %s", test.file, err, test.wantErr)
		}
	}
	const doc = `{
  "file": "standard input",
  "networks": [],
  "shared": [],
  "exclusive": [],
  "segments": {
    "ask": true,
    "infer": true
  },
  "ignoredInterfaces": [],
  "limits": {
    "bindings": 65536,
    "bindingsPerInterface": 256,
    "history": 7,
    "verifyPerSecond": 1000,
    "refreshPerSecond": 100
  }
}
`
	root, out := newRoot(), new(bytes.Buffer)
	root.SetArgs([]string{"config", "check", "-", "-o", "json"})
	root.SetIn(strings.NewReader("limits: {history: 7}"))
	root.SetOut(out)
	if err := root.Execute(); err != nil || out.String() != doc {
		t.Errorf("%v (-want +got):\n%s", err, cmp.Diff(doc, out.String()))
	}
	if _, err := dupip("config", "chek"); err == nil {
		t.Error("config chek is taken")
	}
}

// What is wrong with a command, or with the value of a flag, is one line that says what is right.
func TestWrongCommand(t *testing.T) {
	t.Setenv("DUPIP_REPLICAS", "few")
	for args, want := range map[string]string{
		"nonsense":                  `"nonsense": dupip has no such command; see "dupip --help"`,
		"conflict":                  `"conflict": dupip has no such command; did you mean conflicts? see "dupip --help"`,
		"agent --min-overlap soon":  `--min-overlap "soon": must be a time such as 500ms, 30s or 2m; see "dupip agent --help"`,
		"conflicts --cluster=maybe": `--cluster "maybe": must be true or false; see "dupip conflicts --help"`,
		"conflicts --state open":    `--state "open": must be confirmed, suspected or resolved`,
		"nodes --state gone":        `--state "gone": must be alive, suspect, dead or left`,
		"agent":                     `environment variable DUPIP_REPLICAS: --replicas "few": must be a whole number`,
	} {
		if _, err := dupip(strings.Fields(args)...); err == nil || err.Error() != want {
			t.Errorf("dupip %s: %v, want %s", args, err, want)
		}
	}
}
