package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dupip/dupip/tests/lab"
)

// testFull: what cannot be printed is an error of one line, whatever command prints it, and in whatever format.
func testFull(t *testing.T, s *shown) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	s.Do(err)
	defer full.Close()
	into := func(cmd *exec.Cmd) { cmd.Stdout = full }
	socket := []string{"--api-socket", s.first.agent.Socket}
	folder := t.TempDir()
	file := filepath.Join(folder, "dupip.yaml")
	s.Do(os.WriteFile(file, []byte("networks: []\n"), 0o600))
	formats := []string{"-o table", "-o wide", "-o json", "-o yaml"}
	names := append(formats, "-o name")
	for _, tt := range []struct {
		command string
		formats []string
		asks    bool // an agent
	}{
		{"conflicts", append(names, "--exit-code"), true},
		{"conflicts --cluster --all", names, true},
		{"conflicts --watch", names, true},
		{"bindings", names, true},
		{"bindings --watch", names, true},
		{"audit", append(names, "--exit-code"), true},
		{"nodes", names, true},
		{"explain " + s.across.String(), formats, true},
		{"status", formats, true},
		{"capture " + s.across.String() + " -o -", []string{""}, true},
		{"capture " + s.across.String() + " -o " + filepath.Join(folder, "e.tar.gz"), []string{""}, true},
		{"ui", []string{""}, true},
		{"version", formats, false},
		{"--version", []string{""}, false},
		{"config check " + file, formats, false},
		{"doctor", formats, false},
		{"completion", []string{"bash", "zsh", "fish", "powershell"}, false},
		{"__complete", []string{"conflicts --state="}, false},
		{"", []string{"", "--help"}, false},
		{"help", []string{"", "conflicts"}, false},
		{"config", []string{""}, false},
		{"conflicts --help", []string{""}, false},
	} {
		for _, format := range tt.formats {
			args := strings.Fields(tt.command + " " + format)
			if tt.asks {
				args = append(args, socket...)
			}
			got := dupip(t, into, args...)
			words := []string{"no space left on device"}
			if got.code != 1 {
				t.Errorf("dupip %q: exit %d", args, got.code)
			}
			if tt.command == "__complete" { // a line of cobra's, for whom completes
				_, got.stderr, _ = strings.Cut(got.stderr, "\n")
			}
			if strings.HasSuffix(tt.command, " -o -") && strings.Contains(got.stderr, "frame") {
				t.Errorf("dupip %q says that it has written: %s", args, got.stderr)
			}
			wantOneLine(t, got, words...)
		}
	}
	// A reader that has seen enough is no error.
	binary, err := exec.LookPath("bash")
	s.Do(err)
	for _, command := range []string{"conflicts", "bindings -o json", "explain " + s.across.String(), "help", "completion bash", "bindings --watch"} {
		program := dupipPath(s)
		cmd := exec.CommandContext(t.Context(), binary, "-c", `set -o pipefail; "$0" "$@" | true`)
		cmd.Args = append(cmd.Args, program)
		cmd.Args = append(cmd.Args, strings.Fields(command)...)
		if command != "help" && command != "completion bash" {
			cmd.Args = append(cmd.Args, socket...)
		}
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); len(out) > 0 || code != 0 && code != 128+int(syscall.SIGPIPE) {
			t.Errorf("dupip %s | true: %v, %s", command, err, out)
		}
	}
}

func dupipPath(s *shown) string {
	s.Helper()
	path, err := lab.Binary()
	s.Do(err)
	return path
}
