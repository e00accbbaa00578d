package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// tally counts conflicts.
type tally struct {
	total                      int
	byState, byNode, byNetwork map[string]int
}

// Two nodes give out the same 500 addresses, and one gives 20 more twice. What is printed of that fits one screen, and its
// counts are those of the documents.
func TestFiveHundredConflicts(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	first, second := l.Node(""), l.Node("")
	c := newConfig(l, "networks: [{name: storage, match: {cidrs: [10.92.0.0/16]}}]\n")
	agents := l.Agents([]*lab.Node{first, second}, "--config", c.path)
	began := time.Now()
	for _, p := range []struct {
		node  *lab.Node
		name  string
		from  string
		count int
	}{
		{first, "a", "10.92.0.1", 250},
		{first, "b", "10.93.0.1", 250},
		{second, "c", "10.92.0.1", 250},
		{second, "d", "10.93.0.1", 250},
		{first, "e", "10.94.0.1", 20},
		{first, "f", "10.94.0.1", 20},
	} {
		var addrs []netip.Addr
		for ip := netip.MustParseAddr(p.from); len(addrs) < p.count; ip = ip.Next() {
			addrs = append(addrs, ip)
		}
		l.Pod(p.node, p.name, lab.PodOptions{Style: lab.Routed, Addrs: addrs})
	}
	t.Logf("pods after %.1f s", time.Since(began).Seconds())
	want := tally{
		total: 520, byState: map[string]int{"confirmed": 520}, byNetwork: map[string]int{"default": 270, "storage": 250},
		byNode: map[string]int{first.ShortName(): 520, second.ShortName(): 500},
	}
	for _, a := range agents {
		var text string
		l.Eventually("all conflicts in documents and text", func() error {
			before, err := counted(l, a)
			if err != nil {
				return err
			}
			text = inTerminal(t, 80, []string{"NO_COLOR=1"}, "conflicts", "--cluster", "--api-socket", a.Socket)
			printed, err := readTally(text)
			if err != nil {
				return fmt.Errorf("%w:\n%s", err, text)
			}
			// If nothing has changed meanwhile, the text is of the same moment.
			if after, err := counted(l, a); err != nil || !before.equals(after) {
				return errors.Join(err, fmt.Errorf("from %+v to %+v", before, after))
			}
			if !printed.equals(before) {
				t.Errorf("the documents have %+v, the text %+v:\n%s", before, printed, text)
			}
			if !printed.equals(want) {
				return fmt.Errorf("there are %+v, want %+v", printed, want)
			}
			return nil
		})
		if lines := strings.Count(text, "\n"); lines > 23 {
			t.Errorf("%d lines:\n%s", lines, text)
		}
		t.Logf("after %.1f s at %s:\n%s", time.Since(began).Seconds(), a.Node.ShortName(), text)
	}
	// How to see the rest, as the text says.
	all, err := agents[0].CLI(t.Context(), "conflicts", "--cluster", "-o", "wide")
	l.Do(err)
	if rows := len(regexp.MustCompile(`(?m)^\S+-\d+ .* confirmed `).FindAllString(all, -1)); rows != want.total {
		t.Errorf("-o wide has %d conflicts, want %d", rows, want.total)
	}
}

func (a tally) equals(b tally) bool {
	return a.total == b.total && maps.Equal(a.byState, b.byState) && maps.Equal(a.byNode, b.byNode) && maps.Equal(a.byNetwork, b.byNetwork)
}

// counted counts what the document has.
func counted(l *lab.T, a *lab.Agent) (tally, error) {
	out, err := a.CLI(l.Context(), "conflicts", "--cluster", "-o", "json")
	if err != nil {
		return tally{}, err
	}
	var doc struct {
		Conflicts []lab.Conflict
		Partial   bool
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil || doc.Partial {
		return tally{}, errors.Join(err, fmt.Errorf("partial %v", doc.Partial))
	}
	all := tally{len(doc.Conflicts), make(map[string]int), make(map[string]int), make(map[string]int)}
	for _, c := range doc.Conflicts {
		all.byState[c.State]++
		all.byNetwork[c.Network]++
		var nodes []string
		for _, h := range c.Holders {
			nodes = append(nodes, h.Node)
		}
		slices.Sort(nodes)
		for _, node := range slices.Compact(nodes) {
			all.byNode[node]++
		}
	}
	return all, nil
}

// readTally reads the counts of the summary: "520 conflicts: 500 confirmed, 20 suspected. …", "By node  node1 520, node2 500".
func readTally(text string) (tally, error) {
	all := tally{byState: make(map[string]int), byNode: make(map[string]int), byNetwork: make(map[string]int)}
	for pattern, counts := range map[string]map[string]int{
		`(?m)^\d+ conflicts: (.*?)\.`: all.byState, `(?m)^By node +(.*)$`: all.byNode, `(?m)^By network +(.*)$`: all.byNetwork,
	} {
		match := regexp.MustCompile(pattern).FindStringSubmatch(text)
		if match == nil {
			return all, fmt.Errorf("no %s", pattern)
		}
		for part := range strings.SplitSeq(match[1], ", ") {
			name, number, _ := strings.Cut(part, " ")
			if _, err := strconv.Atoi(name); err == nil { // "500 confirmed"
				name, number = number, name
			}
			n, err := strconv.Atoi(number)
			if err != nil {
				return all, fmt.Errorf("no number in %q", part)
			}
			counts[name] = n
		}
	}
	_, err := fmt.Sscanf(text, "%d conflicts:", &all.total)
	return all, err
}
