package cli

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/say"
)

// One conflict, with the command that people paste on lines of its own.
func TestPrintOneConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		doc := document.Conflicts{Conflicts: []document.Conflict{twoPods("10.0.0.1")}, Coverage: document.Coverage{Asked: 2}}
		p, out := printer(80)
		p.Conflicts(doc)
		want := `IP        STATE      SINCE  NODE  HOLDER      INTERFACE  FIRST SEEN
10.0.0.1  confirmed  20s    n1    shop/web-0  vethweb-0  60m
                            n2    shop/web-1  vethweb-1  60s

What to do:
10.0.0.1: No network plugin gave shop/web-1 on n2 the address, but, as n1 says,
  one gave it to shop/web-0 on n1. shop/web-0 on n1 stays. This is likely, not
  certain. It was probably set by hand in shop/web-1 on n2, or by a program
  there: there is nothing to repair in IPAM. Packets to it go from n1 to
  shop/web-0. shop/web-1 gets no traffic from n1.
  - Remove shop/web-1 on n2, which no network plugin gave the address (this cuts
    the pod shop/web-1, which ends; without a controller it does not come back):
    echo \
      '{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"00000001-2222-4333-8444-555555555555"}}' \
      | kubectl delete --raw /api/v1/namespaces/shop/pods/web-1 -f -
`
		if got := out.String(); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		fitsButCommands(t, out.String(), false)
		// The story has why and what to do in parts, of what is over only why.
		c := twoPods("10.0.0.1")
		e := document.Explanation{Stories: []document.Story{{Nodes: []string{"n1", "n2"}, Conflict: &c}}}
		parts := func() (heads []string) {
			out.Reset()
			p.Explanation(e)
			for line := range strings.Lines(out.String()) {
				if strings.HasPrefix(line, "Wh") {
					heads = append(heads, strings.TrimSpace(line))
				}
			}
			return heads
		}
		for _, test := range []struct {
			state detector.State
			want  string
		}{
			{detector.Confirmed, "Why:|What to do:"},
			{detector.Resolved, "Why:"},
			{detector.Suspected, "What to do:"},
		} {
			if c.State = test.state; test.state != detector.Confirmed {
				c.ResolvedAt = time.Now()
			}
			c = judged(c)
			if got := strings.Join(parts(), "|"); got != test.want {
				t.Errorf("%s: %s\n%s", test.state, got, out)
			}
		}
	})
}

// The lines of a file, a node that has another one's name, and a condition.
func TestPrintSteps(t *testing.T) {
	printed(t, func(p *Printer) {
		steps{p}.list([]document.Step{
			{If: "If it is meant", Text: "Add this to the configuration of n1", Command: "networks:\n  - {name: \"shop\"}\n", File: "the configuration (--config)"},
			{Text: "Shut down the machine", Node: "n1 (boot 12345678)", Address: "192.0.2.2", Cuts: "all pods"},
			{Text: "Look \"dupip nodes\" up"},
		})
	}, `
  - If it is meant: Add this to the configuration of n1:
      networks:
        - {name: "shop"}
  - Shut down the machine, on node n1 (boot 12345678, 192.0.2.2) (this cuts all
    pods).
  - Look "dupip nodes" up.
`)
}

// Commands are complete, with names of any length, and can be pasted into a shell.
func TestLongCommands(t *testing.T) {
	long := strings.Repeat("payments-", 7) + "worker-0"
	for command, want := range map[string]string{
		"kubectl -n shop delete pod " + long:                   "    kubectl -n shop delete pod \\\n      " + long + "\n",
		"kubectl -n shop delete pod web-0":                     "    kubectl -n shop delete pod web-0\n",
		"kubectl -n " + long[:40] + " delete pod " + long[:30]: "    kubectl -n " + long[:40] + " delete pod \\\n      " + long[:30] + "\n",
	} {
		printed(t, func(p *Printer) { steps{p}.command("    ", command) }, want)
	}
}

// A command that continues in other lines does the same as the whole one, at any width.
func TestBrokenCommandRuns(t *testing.T) {
	store, sandbox := filepath.Join(t.TempDir(), "host-local"), strings.Repeat("0123456789abcdef", 4)
	_, list := say.Finding(document.Finding{Kind: document.Unreserved, IP: netip.MustParseAddr("10.0.0.1"), Sandbox: sandbox, Store: store, Book: "host-local", Holder: document.Holder{Given: detector.GivenYes}})
	for width := 40; width <= 120; width += 20 {
		p, out := printer(width)
		steps{p}.command("    ", list[0].Command)
		if strings.Count(out.String(), " \\\n") < 2 {
			t.Errorf("the command is not broken:\n%s", out)
		}
		if result, err := exec.Command("bash", "-c", out.String()).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s\n%s", err, result, out)
		}
		file := filepath.Join(store, "10.0.0.1")
		if got, err := os.ReadFile(file); string(got) != sandbox+"\r\neth0" || err != nil {
			t.Errorf("reserved for %q, %v", got, err)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
	p, out := printer(40)
	steps{p}.command("    ", `[ "$(printf %s,%s,%s first-word second-word third-word)" = first-word,second-word,third-word ] && echo '{"kind":"DeleteOptions"}' | cat -`)
	if got, err := exec.Command("bash", "-c", out.String()).CombinedOutput(); err != nil || string(got) != "{\"kind\":\"DeleteOptions\"}\n" {
		t.Errorf("%q, %v of\n%s", got, err, out)
	}
}
