package scenarios

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/tests/lab"
)

// foundSegments are duplicates on a second segment that joins the nodes, which nobody has declared at first.
var foundSegments = []Scenario{
	with(lab.Macvlan, Scenario{ID: "D46", Want: Found, Nodes: 3, Text: "macvlan devices on a second network of the nodes", Play: onSecondSegment(lab.Macvlan)}),
	with(lab.IPVlan, Scenario{ID: "D46", Want: Found, Nodes: 2, Text: "ipvlan devices on a second network of the nodes", Play: onSecondSegment(lab.IPVlan)}),
	with(lab.Macvlan, Scenario{ID: "D48", Want: Found, Nodes: 2, Text: "the same, where nodes do not hear each other: a finding; found when its lines are in the configuration", Play: func(s *Stage) {
		wire, _ := s.secondUplinks("10.52.0.", "fd00:52::")
		s.isolate(wire)
		ips := lab.IPs("10.52.7.7", "fd00:52::7")
		var pods []*lab.Pod
		for _, a := range s.Actors {
			p := s.PodOn(a, "pod-"+a.Node.ShortName(), lab.PodOptions{Style: lab.Inside, Parent: "eth1", Addrs: ips})
			s.Sees(p, ips...)
			pods = append(pods, p)
		}
		for _, ip := range ips {
			s.findsTwin(s.Actors[0], s.Actors[1], ip, false)
		}
		from := time.Now()
		s.pastes("If eth1 of the nodes is one segment")
		s.FindsEarly(from, time.Now(), pods, ips...)
		s.infers(s.Actors[0], "eth1", false)
	}}),
}

func onSecondSegment(kind string) func(s *Stage) {
	return func(s *Stage) {
		s.secondUplinks("10.52.0.", "fd00:52::")
		ips := lab.IPs("10.52.7.7", "fd00:52::7")
		options := lab.PodOptions{Style: lab.Inside, Device: kind, Parent: "eth1", Addrs: ips}
		older := s.Pod("older", options)
		s.Sees(older, ips...)
		s.infers(s.Actors[0], "eth1", true)
		newcomer := s.PodOn(s.Actors[1], "newcomer", options)
		s.Finds(newcomer.Started, []*lab.Pod{older, newcomer}, ips...)
	}
}

// infers waits until the status of an agent has a device as that of a segment which nobody has declared, or does not have it.
func (s *Stage) infers(a *Actor, device string, want bool) {
	s.Helper()
	s.Eventually("the segment behind "+device, func() error {
		status, err := a.Agent.Client.Status(s.Context())
		segments, _ := status["segments"].([]any)
		has := slices.ContainsFunc(segments, func(g any) bool {
			of, _ := g.(map[string]any)
			return of["device"] == device && of["inferred"] == true && of["error"] == nil
		})
		if err == nil && (len(segments) == 0 || has != want) {
			err = fmt.Errorf("segments are %v", segments)
		}
		return err
	})
}

// isolate keeps the ports of the outer network from each other: each reaches what is behind others, but no node the other one.
func (s *Stage) isolate(wire *netlink.Handle) {
	s.Helper()
	links, err := wire.LinkList()
	s.Do(err)
	for _, l := range links {
		if l.Attrs().MasterIndex != 0 {
			s.Do(wire.LinkSetIsolated(l, true))
		}
	}
}

// audit is what an agent's audit prints, line by line.
func (s *Stage) audit(a *Actor) []string {
	s.Helper()
	text, err := a.Agent.CLI(s.Context(), "audit")
	if text == "" { // with findings it ends with an error
		s.Do(err)
	}
	return strings.Split(text, "\n")
}

// carriesOut runs commands with these words on an agent's node: its audit prints one after the other.
func (s *Stage) carriesOut(a *Actor, words ...string) {
	s.Helper()
	for _, w := range words {
		var lines []string
		i := -1
		s.Eventually("a command with "+w, func() error {
			lines = s.audit(a)
			if i = slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, w) }); i < 0 {
				return fmt.Errorf("the audit says:\n%s", strings.Join(lines, "\n"))
			}
			return nil
		})
		s.Do(a.Node.Exec(func() error {
			out, err := exec.Command("sh", "-c", strings.TrimSpace(lines[i])).CombinedOutput()
			s.Logf("$ dupip audit\n%s\n%s\n%s", strings.Join(lines, "\n"), lines[i], out)
			return err
		}))
	}
}

// pastes puts the lines for the configuration that the audit prints under this condition into that of all nodes, and restarts the agents.
func (s *Stage) pastes(condition string) {
	s.Helper()
	var lines []string
	in := false
	for _, line := range s.audit(s.Actors[0]) {
		if strings.HasPrefix(line, "  - ") {
			in = strings.HasPrefix(line, "  - "+condition)
		}
		if text, is := strings.CutPrefix(line, "      "); is && in {
			lines = append(lines, text)
		}
	}
	file := filepath.Join(s.TempDir(), "config.yaml")
	s.Do(os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	s.Logf("%s:\n%s", condition, strings.Join(lines, "\n"))
	for _, a := range s.Actors {
		s.Do(a.Agent.Stop())
		s.Restart(a, "--config", file)
	}
	s.WaitAllMembers()
}
