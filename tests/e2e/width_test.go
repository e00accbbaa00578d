package e2e

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/creack/pty"

	"github.com/dupip/dupip/tests/lab"
)

// inTerminal runs a command in a terminal with so many columns, and returns what it prints there.
func inTerminal(t testing.TB, columns int, variables []string, args ...string) string {
	t.Helper()
	binary, err := lab.Binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Env = append(os.Environ(), append([]string{"TERM=xterm", "NO_COLOR="}, variables...)...)
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Cols: uint16(columns), Rows: 24})
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	printed, _ := io.ReadAll(terminal) // fails with EIO when the command has closed its side
	_ = cmd.Wait()
	return strings.ReplaceAll(string(printed), "\r\n", "\n")
}

var escapes = regexp.MustCompile(`\x1b\[[0-9;]*m`)

// longest returns the longest line, and its columns. A word that is alone in its line may have any length, such as a path.
func longest(text string) (line string, columns int) {
	for l := range strings.Lines(escapes.ReplaceAllString(text, "")) {
		if len(strings.Fields(strings.TrimSuffix(l, "\\\n"))) < 2 {
			continue
		}
		if n := utf8.RuneCountInString(strings.TrimSuffix(l, "\n")); n > columns {
			line, columns = l, n
		}
	}
	return line, columns
}

// forPeople are the commands that print sentences and tables.
func (s *shown) forPeople() (all [][]string) {
	for _, args := range [][]string{
		{"conflicts"},
		{"conflicts", "--cluster"},
		{"conflicts", "--cluster", "--since", "12h"},
		{"bindings"},
		{"bindings", "--cluster"},
		{"explain", s.across.String()},
		{"explain", s.local.String()},
		{"explain", s.past.String()},
		{"explain", "10.9.9.9"},
		{"status"},
		{"nodes"},
		{"audit"},
		{"audit", "--cluster"},
		{"doctor"},
	} {
		all = append(all, append(args, "--api-socket", s.first.agent.Socket))
	}
	return all
}

var helps = [][]string{
	{"--help"},
	{"agent", "--help"},
	{"audit", "--help"},
	{"bindings", "--help"},
	{"conflicts", "--help"},
	{"doctor", "--help"},
	{"explain", "--help"},
	{"nodes", "--help"},
	{"status", "--help"},
	{"version", "--help"},
	{"version"},
}

// figures differ from one moment to the next, as ages do: 9.9s, 10s, 1m0s.
var figures = regexp.MustCompile(`[0-9][0-9.]*(ns|µs|ms|s|m|h|d)?([0-9]+[smh])?`)

// wordsOf are the words of a text, without figures.
func wordsOf(text string) (words []string) {
	for word := range strings.FieldsSeq(escapes.ReplaceAllString(text, "")) {
		words = append(words, figures.ReplaceAllString(word, "0"))
	}
	return words
}

// piped is what a command prints into a pipe, with that value of COLUMNS.
func piped(t testing.TB, columns string, args ...string) string {
	t.Helper()
	got := dupip(t, func(cmd *exec.Cmd) { cmd.Env = append(os.Environ(), "TERM=xterm", "COLUMNS="+columns) }, args...)
	return got.stdout + got.stderr
}

// Whatever the width, lines fit it and use it, and no word is broken.
func testWidth(t *testing.T, s *shown) {
	for _, args := range slices.Concat(s.forPeople(), helps) {
		broken := ""
		for range 3 { // what is there may change meanwhile, such as the files of other tests in /run/netns
			if broken = brokenWord(t, args); broken == "" {
				break
			}
		}
		if broken != "" {
			t.Errorf("dupip %v %s", args, broken)
		}
	}
}

// brokenWord checks the lines that a command prints in terminals of some widths, and says which word is in one of them only; nothing if
// none is.
func brokenWord(t *testing.T, args []string) string {
	t.Helper()
	whole := piped(t, "1000", args...)
	_, columnsOfWhole := longest(whole)
	printed := make(map[int]string)
	for _, width := range []int{60, 80, 200} {
		got := inTerminal(t, width, nil, args...)
		printed[width] = got
		line, columns := longest(got)
		if columns > width {
			t.Errorf("dupip %v in %d columns has a line of %d: %s", args, width, columns, line)
		}
		if width == 200 && columnsOfWhole > 80 && columns <= 80 {
			t.Errorf("dupip %v in %d columns uses %d:\n%s", args, width, columns, got)
		}
	}
	words := append(wordsOf(whole), wordsOf(piped(t, "1000", args...))...)
	for width, got := range printed {
		for _, word := range wordsOf(got) {
			// Names are shortened in their middle; commands continue after a backslash.
			if !slices.Contains(words, word) && !strings.Contains(word, "…") && word != `\` {
				return fmt.Sprintf("in %d columns breaks a word, or has one more: %s\n%s", width, word, got)
			}
		}
	}
	return ""
}

func testColour(t *testing.T, s *shown) {
	conflicts := []string{"conflicts", "--api-socket", s.first.agent.Socket}
	if got := inTerminal(t, 80, nil, conflicts...); !strings.Contains(got, "\x1b[31mconfirmed\x1b[") {
		t.Errorf("in a terminal, confirmed is not red:\n%q", got)
	}
	for _, variable := range []string{"NO_COLOR=1", "TERM=dumb"} {
		if got := inTerminal(t, 80, []string{variable}, conflicts...); strings.Contains(got, "\x1b") || !strings.Contains(got, "confirmed") {
			t.Errorf("with %s:\n%q", variable, got)
		}
	}
	for _, args := range s.forPeople() {
		for _, columns := range []string{"", "200"} {
			if got := piped(t, columns, args...); strings.Contains(got, "\x1b") {
				t.Errorf("dupip %v piped, COLUMNS=%s: %q", args, columns, got)
			}
		}
	}
}

// command is a line of a command to paste, such as one with the names of a pod and its node, or one that begins with a check.
var command = regexp.MustCompile(`(?m)^ +(kubectl|crictl|calicoctl|ip|grep|echo '|\[ ").*$`)

// In a pipe tables and commands are whole, and sentences have 80 columns, unless COLUMNS has a width, as watch(1) sets it.
func testPiped(t *testing.T, s *shown) {
	for _, args := range s.forPeople() {
		whole := piped(t, "", args...)
		if strings.Contains(whole, "…") || strings.Contains(whole, "\\\n") {
			t.Errorf("dupip %v shortens or breaks in a pipe:\n%s", args, whole)
		}
		for _, width := range []int{60, 120} {
			if line, columns := longest(piped(t, strconv.Itoa(width), args...)); columns > width {
				t.Errorf("COLUMNS=%d dupip %v has a line of %d columns: %s", width, args, columns, line)
			}
		}
		if args[0] == "explain" || args[0] == "doctor" || args[0] == "status" { // no table
			if line, columns := longest(command.ReplaceAllString(whole, "")); columns > 80 {
				t.Errorf("dupip %v has a line of %d columns in a pipe: %s", args, columns, line)
			}
		}
	}
	for _, list := range []string{"bindings", "conflicts"} {
		got := piped(t, "", list, "--cluster", "--api-socket", s.first.agent.Socket)
		if header, _, _ := strings.Cut(got, "\n"); !strings.Contains(header, "INTERFACE") || !strings.Contains(header, "FIRST SEEN") {
			t.Errorf("dupip %s has fewer columns in a pipe: %s", list, header)
		}
	}
}

// Tables fit a terminal of 80 columns whatever the addresses and names are.
func TestLongNames(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	a := l.Agent(n)
	w := l.Watch(a)
	long := netip.MustParseAddr("fd5f:5801:f9ef:a93e:16d3:e3fc:a5ab:9d40")
	short := n.IPv4(5)
	names := []string{"payments-reconciliation-worker-6f4c9d7b58-x2x9z", "checkout-frontend-canary-7d9f8b6c5d-abcde"}
	for i, name := range names {
		l.Pod(n, name, lab.PodOptions{
			Addrs:         []netip.Addr{short, long},
			HostInterface: fmt.Sprintf("vethabcdef%05d", i),
		})
	}
	for _, ip := range []netip.Addr{short, long} {
		_, err := w.WaitConfirmed(ip, patience)
		l.Do(err)
	}
	for _, args := range [][]string{{"bindings"}, {"conflicts"}, {"conflicts", "--all"}, {"explain", long.String()}, {"status"}} {
		got := inTerminal(t, 80, nil, append(args, "--api-socket", a.Socket)...)
		if args[0] != "status" && !strings.Contains(got, long.String()) {
			t.Errorf("dupip %v: the address is not whole:\n%s", args, got)
		}
		if line, columns := longest(got); columns > 80 {
			t.Errorf("dupip %v: a line of %d columns:\n%s%s", args, columns, line, got)
		}
	}
	// Names are the last that is cut, and each address is there once.
	for _, list := range []string{"bindings", "conflicts"} {
		for columns, whole := range map[int][]string{60: {"-x2x9z", "-abcde"}, 80: names} {
			got := inTerminal(t, columns, nil, list, "--api-socket", a.Socket)
			table, _, _ := strings.Cut(got, "What to do")
			for _, name := range whole {
				if n := strings.Count(table, name); n != 2 { // of both addresses
					t.Errorf("dupip %s in %d columns has %q %d times:\n%s", list, columns, name, n, table)
				}
			}
			for _, ip := range []netip.Addr{short, long} {
				if n := strings.Count(table, "\n"+ip.String()+"\n"); n != 1 {
					t.Errorf("dupip %s in %d columns has %s %d times:\n%s", list, columns, ip, n, table)
				}
			}
		}
	}
}
