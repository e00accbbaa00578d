package deploy_test

import (
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/dupip/dupip/agent"
	"github.com/dupip/dupip/agent/metrics"
	"github.com/dupip/dupip/gossip/members"
	"github.com/dupip/dupip/internal/testneeds"
	"github.com/dupip/dupip/tests/helm"
	"github.com/dupip/dupip/tests/lab"
)

// The agent understands what the chart sets, and the commands that the chart prints exist.
func TestChartSpeaksToAgent(t *testing.T) {
	program, err := lab.BuildCached("../..", "./cmd/dupip")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("variables", func(t *testing.T) { testVariables(t, program) })
	t.Run("notes", func(t *testing.T) { testNotes(t, program) })
	t.Run("settings", func(t *testing.T) { testSettings(t, program) })
}

func testVariables(t *testing.T, program string) {
	help, err := exec.Command(program, "agent", "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, help)
	}
	flags := make(map[string]bool)
	for _, flag := range flagsIn(string(help)) {
		flags[variable(flag)] = true
	}
	for _, values := range []string{`{cluster: prod, config: {shared: [10.0.0.53]}}`, `{metrics: {address: hostIP, holders: true}}`} {
		o, err := renderChart(t, "dupip", "dupip", values)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range o.container().Env {
			if !flags[e.Name] {
				t.Errorf("the variable %s is no flag's:\n%s", e.Name, help)
			}
			// Nor may others set what the chart does.
			if _, err := renderChart(t, "dupip", "dupip", `{extraEnv: [{name: `+e.Name+`, value: x}]}`); err == nil {
				t.Errorf("the variable %s can be set twice", e.Name)
			}
		}
	}
}

// flagsIn returns the flags that a help lists.
func flagsIn(help string) (flags []string) {
	for _, flag := range regexp.MustCompile(`(?m)^ +(--[a-z-]+) `).FindAllStringSubmatch(help, -1) {
		flags = append(flags, flag[1])
	}
	return flags
}

// testNotes checks the notes that Helm prints after an installation.
func testNotes(t *testing.T, program string) {
	testneeds.Slow(t)
	text, err := helm.Run(t.Context(), "{gossip: {existingSecret: s}}", "install", "prod", chartDir, "--namespace", "net", "--dry-run=client", "--values", "-")
	if err != nil {
		t.Fatal(err)
	}
	_, notesText, found := strings.Cut(text, "\nNOTES:\n")
	if !found {
		t.Fatalf("no notes in\n%s", text)
	}
	commands := regexp.MustCompile(`(?m)^ *kubectl -n net exec ds/prod-dupip -- dupip (.*?)(?: +#.*)?$`).FindAllStringSubmatch(notesText, -1)
	if len(commands) < 3 {
		t.Errorf("%d commands of dupip in\n%s", len(commands), notesText)
	}
	for _, c := range commands {
		if out, err := exec.Command(program, append(strings.Fields(c[1]), "--help")...).CombinedOutput(); err != nil {
			t.Errorf("dupip %s: %v\n%s", c[1], err, out)
		}
	}
	if !strings.Contains(notesText, "label namespace net pod-security.kubernetes.io/enforce=privileged") {
		t.Errorf("the notes lack what the namespace needs:\n%s", notesText)
	}
}

// Ports and socket of the chart are those in the agent's documentation.
func TestChartHasAgentsDefaults(t *testing.T) {
	o, err := renderChart(t, "dupip", "dupip", "{}")
	if err != nil {
		t.Fatal(err)
	}
	wantSetting(t, o, "--gossip-port", strconv.Itoa(members.DefaultPort))
	wantSetting(t, o, "--metrics-listen", metrics.DefaultListen)
	// Also its usual places of the runtime's socket.
	if socket, given := o.setting("--cri-socket"); given {
		t.Errorf("the socket is %s", socket)
	}
	if value, given := o.setting("--metrics-holders"); given {
		t.Errorf("--metrics-holders is %s", value)
	}
	if o, err = renderChart(t, "dupip", "dupip", "{metrics: {holders: true}}"); err != nil {
		t.Fatal(err)
	}
	wantSetting(t, o, "--metrics-holders", agent.On)
}
