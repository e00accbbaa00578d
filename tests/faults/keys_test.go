package faults

import (
	"crypto/rand"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// keyTime is how long a change of the key file may take to be noticed, and logTime how long a problem
// may take to be logged, which needs two checks, 10 s apart.
var (
	keyTime = lab.Patience(30 * time.Second)
	logTime = lab.Patience(40 * time.Second)
)

// backTime is how long a live member may be missing that was only too slow: it refutes the suspicion
// as soon as it receives it.
var backTime = lab.Patience(10 * time.Second)

// Agents with other keys or another label stay apart, and the cluster is unaffected. Its own
// key changes while it runs.
func TestKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	one, two, strange := lab.NewKey(), lab.NewKey(), lab.NewKey()
	shared := keyFile(t, dir, one)
	s := newTestCluster(t, 4, "--gossip-key-file", shared)
	d := s.duplicate(s.nodes[0], s.nodes[3])
	s.waitFound(d, d.began, patience)

	strangers := s.startUnknownMembers(map[string][]string{
		"other-key":   {"--gossip-key-file", keyFile(t, dir, strange)},
		"other-label": {"--gossip-key-file", shared, "--cluster", "elsewhere"},
	})
	for name, a := range strangers {
		s.waitProblem(a, patience, "this node is alone")
		s.logs(a, logTime, "this node is alone")
		s.Logf("the problems of %s: %q", name, s.problems(a))
		s.pod(&node{Node: a.Node, agent: a}, lab.Routed, d.ips...)
	}
	// Those whom they tried to join.
	s.waitProblem(s.nodes[0].agent, patience, "key")
	s.waitProblem(s.nodes[0].agent, patience, "another cluster")
	s.Logf("the problems of the cluster: %q", s.problems(s.nodes[0].agent))
	s.waitAllMembers()
	during := s.duplicate(s.nodes[1], s.nodes[2])
	s.waitFound(during, during.began, patience)
	for _, a := range strangers {
		conflicts, err := a.Client.Conflicts(s.Context(), true)
		s.Do(err)
		if len(conflicts) > 0 {
			s.Errorf("%s found with whom it has nothing to do: %+v", a.Node.ShortName(), conflicts)
		}
		s.Do(a.Stop())
	}

	// Once the agents have talked to each other, all that the strangers have sent is read.
	after := s.duplicate(s.nodes[0], s.nodes[2])
	s.waitFound(after, after.began, patience)
	// As a person would do it: the new one is known everywhere, then used, then alone.
	closed := s.refused("key")
	var since []int
	for _, n := range s.nodes {
		since = append(since, len(n.agent.Log()))
	}
	for i, keys := range [][]string{{one, two}, {two, one}, {two}} {
		s.rotate(shared, i+1, keys...)
		s.waitAllMembers()
		s.waitFound(s.duplicate(s.nodes[i], s.nodes[i+1]), time.Now(), patience)
	}
	s.assertUnchanged(d)
	if now := s.refused("key"); !maps.Equal(now, closed) {
		s.Errorf("messages that no key opened while the key changed: by node %v, before %v", now, closed)
	}
	for i, n := range s.nodes {
		for _, line := range leaveLines(n.agent.Log()[since[i]:]) {
			s.Errorf("a member was lost at %s while the key changed: %s", n.ShortName(), line)
		}
	}
	last := s.Node("")
	late := s.add(s.Agent(last, append(last.ClusterFlags(), "--gossip-key-file", shared)...))
	s.waitAllMembers()
	s.join(d, late)
	s.waitFound(d, time.Now(), patience)
	s.audit()
	s.end(s.duplicates...)
}

// keyFile writes keys to a file of their own.
func keyFile(t *testing.T, dir string, keys ...string) string {
	t.Helper()
	path := filepath.Join(dir, fmt.Sprintf("keys-%s", rand.Text()))
	if err := os.WriteFile(path, []byte(strings.Join(keys, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// rotate replaces the keys in a file at once, and waits until all agents have read it for
// the times-th time.
func (s *testCluster) rotate(path string, times int, keys ...string) {
	s.Helper()
	next := path + ".next"
	s.Do(os.WriteFile(next, []byte(strings.Join(keys, "\n")+"\n"), 0o600), os.Rename(next, path))
	for _, n := range s.nodes {
		eventually(s.T, keyTime, "keys are read at "+n.ShortName(), func() error {
			if got := strings.Count(n.agent.Log(), "gossip keys read again"); got != times {
				return fmt.Errorf("they were read %d times, want %d", got, times)
			}
			return nil
		})
	}
}

// leaveLines are the lines of an agent's log about members that left, except those that were
// suspected and soon back: on a busy machine one may answer a ping too late.
func leaveLines(log string) (lines []string) {
	all := slices.Collect(strings.Lines(log))
	for i, line := range all {
		switch {
		case strings.Contains(line, "a node left"):
			lines = append(lines, line)
		case strings.Contains(line, "does not answer any more"):
			back := slices.IndexFunc(all[i:], func(later string) bool {
				return strings.Contains(later, "a node joined") && logged(later, "node") == logged(line, "node")
			})
			if back < 0 || loggedAt(all[i+back]).Sub(loggedAt(line)) > backTime {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// logged is the value of an attribute that needs no quotes.
func logged(line, attr string) string {
	_, after, _ := strings.Cut(line, " "+attr+"=")
	value, _, _ := strings.Cut(strings.TrimSpace(after), " ")
	return value
}

func loggedAt(line string) time.Time {
	at, _ := time.Parse(time.RFC3339, logged(" "+line, "time"))
	return at
}

// startUnknownMembers starts agents that cannot join the cluster.
func (s *testCluster) startUnknownMembers(all map[string][]string) map[string]*lab.Agent {
	s.Helper()
	agents := make(map[string]*lab.Agent)
	for name, flags := range all {
		n := s.Node(name)
		agents[name] = s.Agent(n, append(n.ClusterFlags(), flags...)...)
	}
	for _, a := range agents {
		ctx, cancel := lab.WithTimeout(s.Context(), patience)
		defer cancel()
		s.Do(a.WaitMembers(ctx, 1))
	}
	return agents
}

// problems are the problems in an agent's status.
func (s *testCluster) problems(a *lab.Agent) []string {
	s.Helper()
	status, err := s.status(a)
	s.Do(err)
	return status.Problems
}

// logs waits until an agent's log has a warning with these words.
func (s *testCluster) logs(a *lab.Agent, within time.Duration, words ...string) {
	s.Helper()
	eventually(s.T, within, fmt.Sprintf("%s logs %q", a.Node.ShortName(), words), func() error {
		for line := range strings.Lines(a.Log()) {
			if strings.Contains(line, "level=WARN") && hasAll([]string{line}, words) {
				return nil
			}
		}
		return fmt.Errorf("there is no such line")
	})
}
