package e2e

import (
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// complete returns what a shell offers for the last of the words, and cobra's directive.
func (s *shown) complete(words ...string) (offered []string, directive string) {
	s.Helper()
	// The socket of an agent that is not at the usual place is among the words.
	got := dupip(s.TB, nil, slices.Concat([]string{"__complete", words[0], "--api-socket", s.first.agent.Socket}, words[1:])...)
	lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
	if got.code != 0 {
		s.Errorf("completing %q: %+v", words, got)
	}
	for _, line := range lines[:len(lines)-1] {
		value, _, _ := strings.Cut(line, "\t") // a description
		offered = append(offered, value)
	}
	return offered, lines[len(lines)-1]
}

const noFiles = ":4"

// A shell completes values from what the agent knows.
func testCompletion(t *testing.T, s *shown) {
	first, second, third := s.first.agent.Node.ShortName(), s.second.agent.Node.ShortName(), s.third.Node.ShortName()
	across, local, past, db := s.across.String(), s.local.String(), s.past.String(), s.first.reserved("bank/db")
	for _, tt := range []struct {
		args string
		want []string // sorted by text, if these are all
	}{
		{"conflicts --ip", []string{across, local}},
		{"conflicts --all --ip", []string{across, local, past}},
		{"conflicts -n shop --ip", []string{across}},
		{"conflicts --node " + second + " --ip", []string{across}},
		{"conflicts --node " + third + " --ip", nil},
		{"conflicts --pod", []string{"shop/web", "stage/web"}},
		{"conflicts --network", []string{"default"}},
		{"bindings --pod", []string{"bank/db", "shop/web"}},
		{"bindings -n", []string{"bank", "shop"}},
		{"bindings --node " + second + " -n", []string{"stage"}},
		{"bindings --cluster -n", []string{"bank", "shop", "stage"}},
		{"audit --network", []string{s.network()}},
		{"audit --ip", []string{db}},
		{"audit --pod", []string{"bank/db"}},
		{"audit -n", []string{"bank"}},
		{"audit --node " + second + " --ip", nil},
		{"conflicts --node", []string{first, second, third}},
		{"status --node", []string{first, second, third}},
		{"conflicts --state", []string{"confirmed", "resolved", "suspected"}},
		{"explain 10.0.0.1", nil},
		{"capture 10.0.0.1", nil},
	} {
		words := append(strings.Fields(tt.args), "")
		got, directive := s.complete(words...)
		slices.Sort(got)
		slices.Sort(tt.want)
		if !slices.Equal(got, tt.want) || directive != noFiles {
			t.Errorf("completing %q: %q and %s, want %q", words, got, directive, tt.want)
		}
	}
}

// network is the one of CNI's configuration.
func (s *shown) network() string {
	var doc struct{ Checked []string }
	got := s.ask("audit", "-o", "json")
	s.Do(json.Unmarshal([]byte(got.stdout), &doc))
	if len(doc.Checked) != 1 {
		s.Fatalf("networks %q", doc.Checked)
	}
	return doc.Checked[0]
}

var flagName = regexp.MustCompile(`^--[a-z-]+=?$`)

// testOffers: whatever is offered for any flag of any command selects something, or is accepted where it selects nothing.
func testOffers(t *testing.T, s *shown) {
	selecting := []string{"--ip", "--namespace", "--pod", "--network", "--node"}
	lists := map[string]string{"conflicts": "conflicts", "bindings": "bindings", "audit": "findings", "nodes": "nodes", "explain": "stories"}
	for _, command := range []string{"conflicts", "bindings", "audit", "nodes", "explain", "status", "conflicts --cluster", "conflicts --all", "audit --cluster", "bindings --cluster"} {
		words := strings.Fields(command)
		flags, _ := s.complete(append(words, "--")...)
		if len(flags) < 3 {
			t.Errorf("%s: the flags %q", command, flags)
		}
		for _, flag := range flags {
			flag = strings.TrimSuffix(flag, "=")
			if !flagName.MatchString(flag) || slices.Contains([]string{"--help", "--watch", "--no-headers", "--exit-code", "--all", "--all-namespaces", "--cluster", "--local", "--api-socket"}, flag) {
				continue // they have no values, or those of the shell
			}
			values, directive := s.complete(append(words, flag, "")...)
			if directive != noFiles || len(values) == 0 {
				t.Errorf("completing %s %s: %q and %s", command, flag, values, directive)
			}
			for _, value := range values {
				args := append(words, flag, value)
				if command == "explain" {
					args = append(args, cmp.Or(map[string]string{"bank": "db", "shop": "web"}[value], s.across.String()))
				}
				if flag != "--output" {
					args = append(args, "-o", "json")
				}
				got := s.ask(args...)
				var doc map[string]json.RawMessage
				if got.code != 0 || flag != "--output" && json.Unmarshal([]byte(got.stdout), &doc) != nil {
					t.Errorf("%s %s %s is offered: %+v", command, flag, value, got)
				}
				selected := string(doc[lists[words[0]]])
				if words[0] == "audit" && flag == "--network" {
					selected = string(doc["checked"])
				}
				if slices.Contains(selecting, flag) && flag != "--node" && (selected == "[]" || selected == "") {
					t.Errorf("%s %s %s is offered and selects nothing", command, flag, value)
				}
			}
		}
	}
	for _, command := range []string{"explain", "capture"} {
		values, directive := s.complete(command, "")
		if directive != noFiles || len(values) < 2 {
			t.Errorf("completing %s: %q and %s", command, values, directive)
		}
		for _, value := range values {
			if got := s.ask("explain", value, "-o", "json"); got.code != 0 || !strings.Contains(got.stdout, `"bindings": [`) || strings.Contains(got.stdout, `"stories": []`) {
				t.Errorf("%s %s is offered: %+v", command, value, got)
			}
		}
	}
	// Words that nobody can complete offer no files, and paths do.
	for words, want := range map[string]string{
		"conflicts": noFiles, "agent --join": noFiles, "agent --unheld-after": noFiles, "agent --config": ":0", "agent --gossip-key-file": ":0",
		"config check": ":0", "capture --file": ":0", "status --api-socket": ":0", "doctor --state-dir": ":0",
	} {
		got := dupip(t, nil, append(append([]string{"__complete"}, strings.Fields(words)...), "")...)
		lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
		if directive := lines[len(lines)-1]; directive != want {
			t.Errorf("completing %q: %s, want %s", words, directive, want)
		}
	}
}
