package say

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

var (
	causes = []string{
		document.CauseEnding, document.CauseComing, document.CauseLeftOver, document.CauseByHand, document.CauseLost, document.CauseSharedRange,
		document.CauseNamesakes, document.CauseClone, document.CauseNodeAddress, document.CauseUnreachable, document.CauseAway, document.CauseUnknown,
		"of another version",
	}
	reasons = map[string][]string{
		document.Remove: {
			document.ReasonGone, document.ReasonStopped, document.ReasonForgotten, document.ReasonReplaced, document.ReasonNotGiven,
			document.ReasonNotReserved, document.ReasonNewer, document.ReasonOnNode, document.ReasonLifetime, "of another version",
		},
		document.Keep: {document.ReasonGiven, document.ReasonReserved, document.ReasonNode, document.ReasonOlder, document.ReasonLast},
		document.Open: {""},
	}
)

// generated is any judgement, whether it makes sense or not, of holders each of which has texts of its own.
func generated(random *rand.Rand) document.Conflict {
	some := func() bool { return random.IntN(3) > 0 }
	pick := func(list []string) string { return list[random.IntN(len(list))] }
	c := document.Conflict{
		Network: "default", IP: ip, State: []detector.State{detector.Confirmed, detector.Confirmed, detector.Resolved}[random.IntN(3)], Shared: random.IntN(9),
		Judgement: &document.Judgement{Cause: pick(causes), Confidence: pick([]string{certain, likely, open})},
	}
	for n := range 1 + random.IntN(12) {
		b := holder("", node(pick([]string{"a", "b"})), later(random.IntN(90)))
		id := fmt.Sprint("own", n)
		b.Interface, b.Netns, b.NetnsCookie, b.Ifindex = "veth"+id, "cni-"+id, uint64(n), uint32(n)
		b.Given, b.Gone, b.Unreachable = detector.Given(random.IntN(3)), !some(), !some()
		if some() {
			b.Pod = &document.Pod{Namespace: "shop", Name: "web-" + id, CreatedAt: noon}
			if some() {
				b.Pod.UID = fmt.Sprintf("%08d-aaaa-4333-8444-555555555555", 100+n)
			}
			if some() {
				b.Pod.Sandbox = fmt.Sprintf("abcdef%07d", 100+n)
			}
			if !some() {
				b.Pod = &document.Pod{Name: "web-" + id, UID: fmt.Sprintf("%064d", 100+n), Engine: pick([]string{"docker", "podman", "lxc"})}
			}
		}
		switch {
		case !some():
			b.Facts = nil
		case !some():
			b.Evidence, b.Pod, b.Interface = detector.Host, nil, "eth"+id
			b.Facts = &document.Facts{Machine: &document.Machine{Device: "eth" + id, Prefix: netip.PrefixFrom(ip, 24), Dynamic: some(), Since: noon}}
		case some():
			b.Facts = &document.Facts{NetnsPath: "/run/netns/cni-" + id, NetnsInode: uint64(9000 + n)}
		default:
			b.Facts = &document.Facts{NetnsInode: uint64(9000 + n), Process: &document.Process{PID: 7000 + n, Command: id}}
		}
		c.Holders = append(c.Holders, b)
		verdict := pick([]string{document.Remove, document.Keep, document.Open})
		j := document.Judged{Holder: n, Verdict: verdict, Reason: pick(reasons[verdict])}
		if !some() {
			j.By = "n2"
		}
		c.Judgement.Holders = append(c.Judgement.Holders, j)
		if some() {
			c.Routes = append(c.Routes, route("a", document.ToHolder, random.IntN(n+2), "cni0"))
		}
	}
	if some() {
		c.Judgement.Away = &document.Away{Elder: random.IntN(3) - 1, Newer: random.IntN(3) - 1, Nodes: []string{"n1", "n2"}}
	}
	if some() {
		c.Books = []document.Book{book("a", "web", random.IntN(9)), book("b", "", 0)}
		if !some() {
			c.Books[0].Kind = bookAzureCNS
		}
		if !some() {
			c.Books = append(c.Books, document.Book{Kind: "azure", Reservation: &document.Reservation{Node: "n2"}, OwnerUID: "0e1f2a3b-4c5d-4e6f-8a9b-0c1d2e3f4a5b"})
		}
		c.Judgement.Nodes = []string{"n1/" + boot("a"), "n2/" + boot("b")}[:1+random.IntN(2)]
	}
	return c
}

// Whatever is judged: the words are sentences, no command without a condition hits a holder that is not to be removed, and where a
// machine should not run, no step is about a pod.
func TestAnyJudgement(t *testing.T) {
	const number, seed = 5_000, 37
	random := rand.New(rand.NewPCG(seed, 0))
	commands := 0
	for n := range number {
		c := generated(random)
		Fill(&c, at)
		problem := func(format string, args ...any) {
			t.Fatalf("number %d of seed %d: %s\n%+v", n, seed, fmt.Sprintf(format, args...), c.Judgement)
		}
		j := c.Judgement
		for _, text := range []string{j.Short, j.Text + "."} {
			if strings.Contains(text, "%!") || strings.Contains(text, "  ") || strings.Contains(text, " .") || strings.Contains(text, "|") || strings.HasPrefix(text, " ") || !strings.HasSuffix(text, ".") {
				problem("no sentence: %q", text)
			}
		}
		isAboutMachines := j.Cause == document.CauseNamesakes || j.Cause == document.CauseClone
		if isAboutMachines && strings.Contains(j.Short, "-own") {
			problem("it names a pod: %s", j.Short)
		}
		if len(j.Steps) > 50 || c.State == detector.Resolved && len(j.Steps) > 0 {
			problem("%d steps", len(j.Steps))
		}
		for _, s := range j.Steps {
			isRead := strings.HasPrefix(s.Command, "kubectl get ") || strings.HasPrefix(s.Command, "calicoctl ") || strings.HasPrefix(s.Command, "grep ") || strings.HasPrefix(s.Command, "curl localhost:10090/debug/") ||
				strings.HasPrefix(s.Command, "ip -o addr show to ") && !strings.Contains(s.Command, "&&") ||
				strings.HasPrefix(s.Command, "docker inspect ") || strings.HasPrefix(s.Command, "podman inspect ")
			anywhere := strings.Contains(s.Command, "kubectl") || strings.HasPrefix(s.Command, "calicoctl ")
			switch {
			case isAboutMachines && (strings.Contains(fmt.Sprint(s), "-own") || s.Command != "" && !isRead):
				problem("it is not about a machine: %+v", s)
			case strings.Contains(s.Command, "link set dev eth"):
				problem("it cuts a node off: %+v", s)
			case s.Text == "" || strings.Contains(s.Text+s.If+s.Cuts, "%!"):
				problem("no sentence: %+v", s)
			case s.Command != "" && anywhere != (s.Node == ""):
				problem("on no node, or on one: %+v", s)
			case s.Command != "" && !isRead && s.Cuts == "":
				problem("it does not say what it cuts: %+v", s)
			}
			if isRead || s.Command == "" {
				continue
			}
			commands++
			for _, j := range j.Holders {
				own := []string{
					fmt.Sprint("own", j.Holder, " "), fmt.Sprintf("%08d-", 100+j.Holder), fmt.Sprintf("abcdef%07d", 100+j.Holder), fmt.Sprintf("%064d", 100+j.Holder),
					fmt.Sprint("net:[", 9000+j.Holder, "]"), fmt.Sprint("/proc/", 7000+j.Holder, "/"),
				}
				hits := slices.ContainsFunc(own, func(id string) bool { return strings.Contains(s.Command+" ", id) })
				if hits && s.If == "" && (j.Verdict != document.Remove || j.Reason == document.ReasonGone) {
					problem("it hits holder %d: %+v", j.Holder, s)
				}
			}
		}
	}
	t.Logf("%d judgements, %d commands", number, commands)
}

// However many holders and nodes a conflict has, its steps are bounded.
func TestStepsOfManyHolders(t *testing.T) {
	for name, test := range map[string]struct {
		cause, verdict string
		hosts          bool
		want           int
	}{
		"ask books":        {document.CauseUnknown, "open", false, 3 + maxFlushes + maxAsked + 2},
		"ask nodes":        {document.CauseUnknown, "open", true, 2*maxFlushes + maxAsked/2 + 1},
		"machines":         {document.CauseNamesakes, "open", false, 1 + maxAsked + 1},
		"a range":          {document.CauseSharedRange, "open", false, 1 + maxAsked + 1},
		"all have to go":   {document.CauseByHand, "remove not-given", false, 2*maxAsked + 1},
		"none has to stay": {document.CauseEnding, "remove gone", false, 1},
	} {
		var holders []document.Binding
		var verdicts []string
		for n := range 20 {
			b := holder("web")
			if b.BootID = boot(string(rune('a' + n))); test.hosts && n%2 == 0 {
				host("eth0", true, noon)(&b)
			}
			b.Node = fmt.Sprint("n", n)
			holders, verdicts = append(holders, b), append(verdicts, fmt.Sprint(n, " ", test.verdict))
		}
		c := judged(test.cause, open, strings.Join(verdicts, ", "), holders...)
		Fill(&c, at)
		if got := len(c.Judgement.Steps); got != test.want {
			t.Errorf("%s: %d steps, want %d", name, got, test.want)
		}
	}
}
