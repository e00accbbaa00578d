package e2e

import (
	"bufio"
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dupip/dupip/tests/lab"
)

// Lists have what the flags select, in the order that was asked for.
func testLists(t *testing.T, s *shown) {
	across, local, past := s.across.String(), s.local.String(), s.past.String()
	gateway, db := "10.94.0.1", s.first.reserved("bank/db") // the gateway is the node's own
	second := s.second.agent.Node.ShortName()
	for _, tt := range []struct {
		args string
		want []string // addresses, sorted by text
	}{
		{"conflicts --cluster", []string{across, local}},
		{"conflicts --cluster -n stage", []string{across}},
		{"conflicts --cluster -n bank", nil},
		{"conflicts --cluster --pod web", []string{across}},
		{"conflicts --cluster --pod stage/web", []string{across}},
		{"conflicts --cluster --pod bank/web", nil},
		{"conflicts --cluster --ip 10.94.0.0/24", []string{across}},
		{"conflicts --cluster --ip 10.0.0.0/8", []string{across, local}},
		{"conflicts --cluster --ip " + local, []string{local}},
		{"conflicts --cluster --network default", []string{across, local}},
		{"conflicts --cluster --network other", nil},
		{"conflicts --node " + second, []string{across}},
		{"conflicts --cluster --state confirmed", []string{across, local}},
		{"conflicts --cluster --state suspected", nil},
		{"conflicts --cluster --state resolved", []string{past}},
		{"conflicts --cluster --all", []string{across, local, past}},
		{"conflicts --cluster --since 12h", []string{across, local, past}},
		{"conflicts --since 12h --state resolved", []string{past}},
		{"conflicts --cluster --since 1ms", []string{across, local}},
		{"bindings -n shop", []string{across}},
		{"bindings --pod bank/db", []string{db}},
		{"bindings --ip 10.94.0.0/24", []string{gateway, across, db}},
		{"bindings --ip 10.94.0.0/24 --node " + second, []string{gateway, across}},
		{"bindings --ip 10.94.0.0/24 --network other", nil},
		{"audit --cluster -n bank", []string{db}},
		{"audit --cluster -n shop", nil},
		{"audit --node " + second, nil},
	} {
		slices.Sort(tt.want)
		if got := s.ips(strings.Fields(tt.args)...); !slices.Equal(got, tt.want) {
			t.Errorf("dupip %s: %q, want %q", tt.args, got, tt.want)
		}
	}
	for _, tt := range []struct{ args, words string }{
		{"conflicts --node nowhere", "nowhere"},
		{"conflicts --ip 10.0.0.0/99", "prefix"},
		{"conflicts --state open", "confirmed, suspected"},
		{"conflicts --sort-by size", "began, ip, network, node, pod, since or state"},
		{"conflicts --watch --sort-by ip", "exclude each other"},
		{"conflicts --watch --since 12h", "exclude each other"},
		{"conflicts --since yesterday", "must be a duration such as 30m or 12h"},
		{"conflicts --since -12h", "must be a duration"},
		{"bindings --watch --cluster", "exclude each other"},
		{"conflicts --cluster --node x", "exclude each other"},
		{"status -o name", "lists"},
	} {
		wantOneLine(t, s.ask(strings.Fields(tt.args)...), tt.words)
	}
}

// testLastNight: a node that had no part in it says what was open lately, when it began and how long it lasted.
func testLastNight(t *testing.T, s *shown) {
	line := regexp.MustCompile(`(?m)^.*` + regexp.QuoteMeta(s.past.String()) + ` .*resolved .* \d\d:\d\d:\d\d  +[\d.]+m?s .*$`)
	for _, args := range []string{"", " -o wide"} {
		got := dupip(t, nil, append(strings.Fields("conflicts --cluster --since 12h"+args), "--api-socket", s.third.Socket)...)
		if !line.MatchString(got.stdout) || !strings.Contains(got.stdout, "BEGAN     LASTED  ") {
			t.Errorf("dupip conflicts --since 12h%s: %+v", args, got)
		}
		if got := s.ask(strings.Fields("conflicts --cluster" + args)...); strings.Contains(got.stdout, "BEGAN") {
			t.Errorf("dupip conflicts%s: nothing is over: %+v", args, got)
		}
	}
}

// reserved is the address of a pod.
func (b *booked) reserved(pod string) string {
	b.Helper()
	got, err := b.agent.CLI(b.Context(), "bindings", "--pod", pod, "-o", "name")
	b.Do(err)
	return strings.TrimSpace(got)
}

func testNames(t *testing.T, s *shown) {
	across, local, past := s.across.String()+"\n", s.local.String()+"\n", s.past.String()+"\n"
	var nodes []string
	for _, a := range []*lab.Agent{s.first.agent, s.second.agent, s.third} {
		nodes = append(nodes, a.Node.ShortName()+"\n")
	}
	slices.Sort(nodes)
	for _, tt := range []struct{ args, want string }{
		{"conflicts --cluster -o name --sort-by ip", across + local},
		{"conflicts --cluster -o name --all --sort-by ip", across + local + past},
		{"conflicts --cluster -o name --since 1h --sort-by ip", across + local + past},
		{"conflicts --cluster -o name --all -n shop --sort-by state", across},
		{"conflicts --ip 10.244.0.0/16 -o name --all --sort-by state", local + past}, // confirmed, resolved
		{"bindings --cluster -o name --ip 10.94.0.2/31 --sort-by pod", s.first.reserved("bank/db") + "\n" + across},
		{"nodes -o name --sort-by name", strings.Join(nodes, "")},
		{"nodes -o name --state dead", ""},
		{"audit -o name", s.first.reserved("bank/db") + "\n"},
	} {
		got := s.ask(strings.Fields(tt.args)...)
		if got.code != 0 || got.stdout != tt.want {
			t.Errorf("dupip %s: %+v, want %q", tt.args, got, tt.want)
		}
	}
	for _, args := range []string{"conflicts", "bindings", "nodes", "audit", "bindings -o wide"} {
		header := regexp.MustCompile(`(?m)^(IP|NAME|NETWORK) +[A-Z]`)
		if got := s.ask(strings.Fields(args)...); !header.MatchString(got.stdout) {
			t.Errorf("dupip %s has no header:\n%s", args, got.stdout)
		}
		if got := s.ask(strings.Fields(args + " --no-headers")...); got.code != 0 || header.MatchString(got.stdout) {
			t.Errorf("dupip %s --no-headers has one:\n%s", args, got.stdout)
		}
	}
	version := dupip(t, nil, "--version")
	if !regexp.MustCompile(`^dupip \S+\n$`).MatchString(version.stdout) || version.code != 0 {
		t.Errorf("--version: %+v", version)
	}
}

// The API refuses what it does not know, instead of giving more than was asked for.
func testParameters(t *testing.T, s *shown) {
	for _, tt := range []struct {
		path, word string
		code       int
	}{
		{"/v1/conflicts?ip=10.0.0.0/8&cluster=1", "", 200},
		{"/v1/conflicts?pods=web", `\"pods\": no such parameter`, 400},
		{"/v1/conflicts?all=yes", "all=yes", 400},
		{"/v1/conflicts?state=open", "state=open", 400},
		{"/v1/conflicts?since=12h&cluster=1", `"state":"resolved"`, 200},
		{"/v1/conflicts?since=-12h", "since=-12h: must be a duration", 400},
		{"/v1/conflicts?node=a&node=b", "2 times", 400},
		{"/v1/conflicts?watch=1&all=1", "omit state, all and since", 400},
		{"/v1/bindings?state=confirmed", "no such parameter", 400},
		{"/v1/bindings?ip=10.0.0", "10.0.0", 400},
		{"/v1/bindings?watch=1&cluster=1", "this agent only", 400},
		{"/v1/status?node=" + s.second.agent.Node.ShortName(), `"node":"` + s.second.agent.Node.ShortName() + `"`, 200},
		{"/v1/status?cluster=1", "/v1/status has node", 400},
		{"/v1/status?node=nowhere", "nowhere", 404},
		{"/v1/nodes?state=confirmed", "alive", 400},
		{"/v1/explain", "an address is required", 400},
		{"/v1/explain?ip=10.0.0.0/8", "an address is required", 400},
		{"/v1/conflicts?node=nowhere", "nowhere", 404},
		{"/v1/nothing", "no such document", 404},
	} {
		if got := s.get(tt.path); got.code != tt.code || !strings.Contains(got.body, tt.word) {
			t.Errorf("GET %s: %+v; want %d, %q", tt.path, got, tt.code, tt.word)
		}
	}
}

// watch starts a watch and returns what returns its next line that matches; others are of what was there before, or of a
// state between.
func (s *shown) watch(t *testing.T, args []string, a *lab.Agent) (next func(pattern string) string) {
	t.Helper()
	binary, err := lab.Binary()
	s.Do(err)
	cmd := exec.CommandContext(t.Context(), binary, append(args, "--api-socket", a.Socket)...)
	out, err := cmd.StdoutPipe()
	s.Do(err, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	printed := make(chan string, 1000)
	go func() {
		defer close(printed)
		for lines := bufio.NewReader(out); ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			printed <- strings.TrimSuffix(line, "\n")
		}
	}()
	return func(pattern string) string {
		t.Helper()
		ctx, want := within(s.T, patience), regexp.MustCompile(pattern)
		var others []string
		for {
			select {
			case line, ok := <-printed:
				if want.MatchString(line) {
					return line
				}
				if others = append(others, line); !ok {
					t.Fatalf("the watch has ended without %q: %q", pattern, others)
				}
			case <-ctx.Done():
				t.Fatalf("no line %q, but %q", pattern, others)
			}
		}
	}
}

// A node without a holder watches a duplicate across two others begin and end.
func testWatch(t *testing.T, s *shown) {
	next := s.watch(t, []string{"conflicts", "--watch", "--cluster"}, s.third)
	if header := next(""); !regexp.MustCompile(`^TIME +EVENT +ADDRESS`).MatchString(header) {
		t.Errorf("the first line is %q", header)
	}
	const clock = `^\d\d:\d\d:\d\d\.\d\d\d  `
	next(clock + `confirmed +` + regexp.QuoteMeta(s.across.String()) + " .*shop/web on .*stage/web on |" +
		clock + `confirmed +` + regexp.QuoteMeta(s.across.String()) + " .*stage/web on .*shop/web on ")

	ip := netip.MustParseAddr("10.93.0.7")
	here := s.Pod(s.first.agent.Node, "here", lab.PodOptions{Style: lab.Routed, Addrs: []netip.Addr{ip}})
	s.Pod(s.second.agent.Node, "there", lab.PodOptions{Style: lab.Routed, Addrs: []netip.Addr{ip}})
	text := ` +` + regexp.QuoteMeta(ip.String()) + `  .* on .* and .* on `
	next(clock + `confirmed` + text)
	s.Do(here.Delete())
	next(clock + `resolved +` + regexp.QuoteMeta(ip.String()))
	if conflicts, err := s.third.Client.Conflicts(t.Context(), true); err != nil || len(conflicts) > 0 {
		t.Errorf("the third node has conflicts of its own: %+v, %v", conflicts, err)
	}
}
