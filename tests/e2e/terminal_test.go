package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// testTerminal: what who knows kubectl tries first.
func testTerminal(t *testing.T, s *shown) {
	across, local := s.across.String(), s.local.String()
	for _, pod := range []string{"shop/web", "stage/web", "db"} {
		want := across + " in network "
		if pod == "db" {
			want = s.first.reserved("bank/db") + " in network "
		}
		if got := s.ask("explain", pod); got.code != 0 || !strings.HasPrefix(got.stdout, want) {
			t.Errorf("explain %s: %+v", pod, got)
		}
	}
	both := []string{across, local} // 10.94.… and 10.244.…
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"conflicts", "--cluster", "-A", "-o", "name"}, strings.Join(both, "\n") + "\n"},
		{[]string{"conflicts", "--cluster", "--sort-by", "ip", "-o", "jsonpath={.conflicts[*].ip}"}, strings.Join(both, " ")},
		{[]string{"conflicts", "--cluster", "--sort-by", "ip", "-o", `jsonpath={range .conflicts[*]}{.ip}{"\n"}{end}`}, strings.Join(both, "\n") + "\n"},
		{[]string{"conflicts", "-n", "shop", "-o", "custom-columns=ADDRESS:.ip,STATE:.state,NONE:.nothing"}, fmt.Sprintf("ADDRESS%*s  STATE      NONE\n%s  confirmed  <none>\n", len(across)-7, "", across)},
		{[]string{"conflicts", "-n", "shop", "-o", "custom-columns=ADDRESS:.ip", "--no-headers"}, across + "\n"},
		{[]string{"nodes", "-o", "jsonpath={.nodes[*].state}"}, "alive alive alive"},
	} {
		if got := s.ask(tt.args...); got.code != 0 || got.stdout != tt.want || got.stderr != "" {
			t.Errorf("dupip %q prints %q, %+v, want %q", tt.args, got.stdout, got, tt.want)
		}
	}
	for _, tt := range [][2]string{
		{"explain web", `"web": shop/web, stage/web have that name: say which`},
		{"explain shop/none", `"shop/none": neither an IP address nor a pod`},
		{"explain 10.0.0", "10.0.0"},
		{"conflicts -o jsonpath={.conflicts[", "jsonpath"},
		{"conflicts -o jsonpath=", "must be jsonpath=TEMPLATE, as jsonpath={.conflicts[*].ip}"},
		{"conflicts -o custom-columns=", "must be custom-columns=HEADER:PATH,"},
		{"conflicts -o jsonpath={.conflicts[9].ip}", "index 9, length 2; -o json shows what there is"},
		{"doctor -o jsonpath={", "jsonpath"},
		{"conflicts -o custom-columns=IP", "custom-columns"},
		{"conflicts --watch -o jsonpath={.ip}{", "jsonpath"},
	} {
		got := s.ask(strings.Fields(tt[0])...)
		if got.code != 1 || got.stdout != "" || strings.Count(got.stderr, "\n") != 1 || !strings.Contains(got.stderr, tt[1]) {
			t.Errorf("dupip %s: %+v, want one line about %q", tt[0], got, tt[1])
		}
	}
	wantOneLine(t, dupip(t, nil, "completion", "bash", "now"), `"now": dupip completion bash takes no arguments`)
	if got := dupip(t, nil, "completion", "tcsh"); got.code != 1 || got.stdout != "" || strings.Count(got.stderr, "\n") != 1 || !strings.Contains(got.stderr, `see "dupip completion --help"`) {
		t.Errorf("completion for a shell that is not known: %+v", got)
	}
	if got := s.ask("doctor", "-o", "jsonpath={.checks[0].name}"); got.stdout != "capabilities" {
		t.Errorf("a path of the doctor's report: %+v", got)
	}
	for _, list := range [][]string{{"conflicts", "--cluster"}, {"bindings", "--cluster"}, {"nodes"}, {"audit", "--cluster"}} {
		got := s.ask(append(list, "--no-headers")...)
		for line := range strings.Lines(got.stdout) {
			if len(strings.Fields(line)) < 3 || strings.HasSuffix(line, ".\n") || strings.Contains(line, "What to do") || strings.Contains(line, "NODE") {
				t.Errorf("%q without headers has a line that is no row: %s", list, line)
			}
		}
		if got.code != 0 || got.stdout == "" || strings.Contains(got.stderr, "Book") {
			t.Errorf("%q without headers: %+v", list, got)
		}
	}
	// Without headers a terminal has the rows of a pipe, each whole.
	rows := []string{"conflicts", "--cluster", "--no-headers", "--api-socket", s.first.agent.Socket}
	if got, want := wordsOf(inTerminal(t, 60, nil, rows...)), wordsOf(piped(t, "", rows...)); !slices.Equal(got, want) || strings.Count(strings.Join(want, " "), "confirmed") != 4 {
		t.Errorf("without headers a terminal has %q, and a pipe %q", got, want)
	}
	// What is missing is said beside the rows, but not within what a template selects.
	for format, missing := range map[string]bool{"custom-columns=IP:.ip": true, "name": true, "jsonpath={.findings[*].ip}": false} {
		if got := s.ask("audit", "--cluster", "-o", format); got.code != 0 || strings.Contains(got.stderr, "Not checked: on node "+s.third.Node.ShortName()) != missing {
			t.Errorf("audit -o %s: %+v", format, got)
		}
	}
	// A node's own address is in the network of its segment, too.
	listed := make(map[string]bool)
	for line := range strings.Lines(s.ask("bindings", "--cluster", "--no-headers").stdout) {
		if holder := strings.Join(strings.Fields(line)[:4], " "); listed[holder] || strings.Contains(holder, "(") {
			t.Errorf("bindings have twice: %s", holder)
		} else {
			listed[holder] = true
		}
	}
	if doc := s.ask("bindings", "--cluster", "-o", "jsonpath={.bindings[*].network}").stdout; len(listed) == 0 || len(listed) >= len(strings.Fields(doc)) {
		t.Errorf("%d of the bindings in networks %s", len(listed), doc)
	}
	for command, want := range map[string]bool{"explain": true, "capture": false} {
		if offered, _ := s.complete(command, ""); slices.Contains(offered, "shop/web") != want || !slices.Contains(offered, across) {
			t.Errorf("for %s a shell offers %q", command, offered)
		}
	}
	for _, locale := range []string{"POSIX", "C", "de_DE.ISO-8859-1"} {
		for _, args := range slices.Concat(s.forPeople(), helps) {
			got := dupip(t, func(cmd *exec.Cmd) { cmd.Env = append(os.Environ(), "LC_ALL="+locale) }, args...)
			for line := range strings.Lines(got.stdout + got.stderr) {
				if strings.ContainsFunc(line, func(r rune) bool { return r > 127 }) {
					t.Errorf("with LC_ALL=%s dupip %q prints %q", locale, args, line)
					break
				}
			}
		}
	}
}
