// Package doctor examines a node whose agent does not start or observes nothing. Each check has a
// finding and, if something is wrong, advice.
//
// It works with and without a running agent and changes nothing on the node: it takes no lock, makes no
// file, attaches in a network namespace of its own, and listens at free ports for a moment. It calls the
// checks of the packages that prepare an agent, and must not know how to observe.
package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/dupip/dupip/agent"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/document"
)

// The parts of a report, by short names.
type (
	// Status is the outcome of a check.
	Status = document.DoctorStatus
	// Check is one thing that was examined.
	Check = document.DoctorCheck
)

// The outcomes.
const (
	OK   = document.DoctorOK
	Warn = document.DoctorWarn
	Fail = document.DoctorFail
	Skip = document.DoctorSkip
)

// Options are the settings of the agent, as its flags have them. Version is that of this program, to be compared with the agent's.
type Options struct {
	agent.Options
	Bind       string // without Bind and Join the agent is alone
	GossipPort int
	Join       []string
	KeyFile    string // empty for none
	NeedsKey   bool   // an agent with this Bind needs KeyFile

	// CountKeys, CheckPort and Resolve are the agent's functions to read its keys, to listen at an address
	// (empty for all) and to resolve Join; Resolve also returns the entries without an address. They are
	// required if there is a cluster.
	CountKeys func(path string) (int, error)
	CheckPort func(bind string, port int) error
	Resolve   func(ctx context.Context, join []string, port int) ([]netip.AddrPort, []string)
}

const (
	// answerTimeout is how long a check waits for others: an agent, a runtime, a name server.
	answerTimeout = 5 * time.Second
	// hangTimeout is when a check is abandoned: parts of a broken node may hang. On a node that is only busy no check takes so long.
	hangTimeout = 15 * time.Second
)

// check is a row of the table. Run abandons the goroutine of examine after the timeout, so examine must
// not write to shared memory.
type check struct {
	name     string
	examine  func(context.Context, *facts) Check
	requires requirement
}

// requirement is a condition without which a check is skipped.
type requirement uint8

const (
	rights  requirement = 1 << iota // to load programs, enter netns and send
	joined                          // flags or status of an agent that is not alone
	running                         // an agent that answers
)

var checks = slices.Concat([]check{
	{"capabilities", checkCapabilities, 0},
	{"kernel", checkKernel, 0},
}, featureChecks(), []check{
	{"security", checkSecurity, 0},
	{"bpf jit", setting("/proc/sys/net/core/bpf_jit_enable", map[string]Check{
		"":  skip("only readable in the machine's own network namespace"),
		"0": warn("run sysctl -w net.core.bpf_jit_enable=1, and keep it in /etc/sysctl.d", "the BPF compiler is off: each packet costs several times as much"),
	}), 0},
	{"bpf tcx", attachCheck(bpf.TCX), rights},
	{"bpf tc", attachCheck(bpf.TC), rights},
	{"bpf xdp", attachCheck(bpf.XDP), rights},
	{"processes", checkProcesses, 0},
	{"netns names", checkNames, 0},
	{"pods", checkPods, 0},
	{"ipv6", setting("/proc/sys/net/ipv6/conf/all/disable_ipv6", map[string]Check{
		"":  ok("not in this kernel; IPv4 is observed"),
		"1": ok("off on this node; IPv6 of pods is seen, but cannot be verified"),
	}), 0},
	{"agent", checkAgent, 0},
	{"interfaces", checkInterfaces, running},
	{"drops", checkDrops, running},
	{"api socket", checkSocket, 0},
	{"metrics", checkMetrics, 0},
	{"gossip port", checkGossipPort, joined},
	{"gossip join", checkJoin, joined},
	{"gossip keys", checkKeys, joined},
	{"gossip", checkGossip, joined | running},
	{"runtime", checkRuntime, 0},
	{"engines", checkEngines, 0},
	{"books", checkBooks, 0},
	{"state dir", checkStateDir, 0},
	{"config", checkConfig, 0},
	{"alertmanager", checkAlertmanagers, 0},
	{"on conflict", checkProgram, 0},
})

// Run examines the node from the calling process's namespaces, in about a second. It abandons a check
// after 5 s. When ctx ends, the remaining checks fail.
func Run(ctx context.Context, opts Options) document.DoctorReport {
	known := gather(ctx, opts)
	var all []Check
	for _, c := range checks {
		f := examine(ctx, c, known)
		all = append(all, Check{Name: c.name, Status: f.Status, Finding: sanitize(f.Finding), Advice: sanitize(f.Advice)})
	}
	return document.NewDoctorReport(all)
}

// examine runs one check.
func examine(parent context.Context, c check, known *facts) Check {
	switch {
	case parent.Err() != nil:
		return fail("run it again", "not examined: %v", parent.Err())
	case c.requires&rights != 0 && known.rights != nil:
		return skip("cannot be tried without the rights of root: see \"capabilities\"")
	case c.requires&joined != 0 && !known.joined():
		return skip("no --join and no --bind: an agent alone finds the duplicates of its own node")
	case c.requires&running != 0 && known.status == nil:
		return skip("needs a running agent")
	}
	ctx, cancel := context.WithTimeout(parent, answerTimeout)
	defer cancel()
	done := make(chan Check, 1)
	go func() { done <- c.examine(ctx, known) }()
	select {
	case f := <-done:
		return f
	case <-parent.Done():
		return fail("run it again", "not examined to the end: %v", parent.Err())
	case <-time.After(hangTimeout): // later than ctx, so that a check can report what hangs
		return fail("the node itself hangs there: look for blocked processes (ps -eo state,pid,wchan,cmd) and at dmesg", "no result after %v", hangTimeout)
	}
}

func outcome(status Status, advice, format string, args ...any) Check {
	return Check{Status: status, Finding: fmt.Sprintf(format, args...), Advice: advice}
}

func ok(format string, args ...any) Check           { return outcome(OK, "", format, args...) }
func skip(format string, args ...any) Check         { return outcome(Skip, "", format, args...) }
func warn(advice, format string, args ...any) Check { return outcome(Warn, advice, format, args...) }

func fail(advice, format string, args ...any) Check { return outcome(Fail, advice, format, args...) }

const maxText = 1500 // bytes of a finding and an advice, which may have foreign text

// sanitize makes one line of printable characters.
func sanitize(text string) string {
	return document.Text(strings.Join(strings.Fields(text), " "), maxText)
}
