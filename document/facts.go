package document

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// The bounds of facts: addresses, and bytes of the name of a process, as the kernel has it (TASK_COMM_LEN).
const (
	MaxGivenOthers = 8
	MaxCommand     = 15
	maxShared      = 1_000_000
)

// plainPath matches the paths that a command may have.
var plainPath = regexp.MustCompile(`^(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+$`)

// IsPlainPath reports whether a text is an absolute path without anything that a shell would interpret.
func IsPlainPath(path string) bool { return len(path) <= MaxName && plainPath.MatchString(path) }

// Check removes what no agent says of a holder with that address.
func (f *Facts) Check(ip netip.Addr) {
	if !slices.Contains([]Behind{BehindRunning, BehindAlive, BehindStopped, BehindForgotten}, f.Behind) {
		f.Behind = ""
	}
	keep(&f.GivenOthers, func(a *netip.Addr) bool { return a.IsValid() && !a.Is4In6() && a.Zone() == "" && *a != ip })
	cut(&f.GivenOthers, MaxGivenOthers)
	if !IsPlainPath(f.NetnsPath) {
		f.NetnsPath = ""
	}
	if p := f.Process; p != nil {
		if p.Command = Text(p.Command, MaxCommand); p.PID <= 0 {
			f.Process = nil
		}
	}
	if m := f.Machine; m != nil && (!m.Prefix.IsValid() || m.Prefix.Addr() != ip || m.Device == "") {
		f.Machine = nil
	} else if m != nil && !slices.Contains(Managers, m.Manager) {
		m.Manager = ""
	}
}

// String names the process, and its unit if it has one.
func (p *Process) String() string {
	text := strings.TrimSpace("process " + p.Command)
	if p.Unit != "" {
		text += " of " + p.Unit
	}
	return fmt.Sprintf("%s (pid %d)", text, p.PID)
}

// Alike reports whether what a judgement goes by is the same.
func (f *Facts) Alike(o *Facts) bool {
	same := f.Machine == o.Machine || f.Machine != nil && o.Machine != nil && f.Machine.Prefix == o.Machine.Prefix && f.Machine.Dynamic == o.Machine.Dynamic
	return same && f.Behind == o.Behind && f.CNINetwork == o.CNINetwork && slices.Equal(f.GivenOthers, o.GivenOthers)
}

// checkFacts removes the facts that a node may not know, or that no agent says: it knows its own holders only.
func checkFacts(holders []Binding, node string) {
	for i := range holders {
		b := &holders[i]
		b.Listing = nil // no agent asks the API server
		if b.NodeID() != node {
			b.Facts = nil
		} else if b.Facts != nil {
			b.Facts.Check(b.IP)
		}
	}
}

// changeFacts changes the facts of each holder.
func changeFacts(holders []Binding, change func(*Facts)) {
	for _, b := range holders {
		if b.Facts != nil {
			change(b.Facts)
		}
	}
}
