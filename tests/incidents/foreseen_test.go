package incidents

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// waitForeseen waits until `dupip audit` and the metrics say of every address of these pods, which were
// freed, that it is not reserved. No second pod has any of them yet. It returns how long after the
// removal the last of them was found.
func (s *testCluster) waitForeseen(pods ...*pod) (took time.Duration) {
	s.Helper()
	for _, p := range pods {
		for _, ip := range p.IPs {
			s.Eventually(fmt.Sprintf("%v of %v as unreserved", ip, p), func() error {
				seen := p.m.audits.Seen()
				i := slices.IndexFunc(seen, func(f lab.SeenFinding) bool { return isLost(f.Finding, p, ip) && f.First.After(p.freed) })
				if i < 0 {
					return fmt.Errorf("the findings so far are %v", seen)
				}
				took = max(took, seen[i].First.Sub(p.freed))
				return nil
			})
		}
	}
	for _, m := range s.machines {
		want := 0
		for _, p := range pods {
			if p.m == m {
				want += len(p.IPs)
			}
		}
		if want == 0 {
			continue
		}
		s.Eventually("findings on "+m.name, func() error {
			found, err := m.findings()
			for _, p := range pods {
				for _, ip := range p.IPs {
					if p.m == m && !slices.ContainsFunc(found, func(f lab.Finding) bool { return isLost(f, p, ip) }) {
						err = errors.Join(err, fmt.Errorf("without %v of %v: %v", ip, p, found))
					}
				}
			}
			return errors.Join(err, m.counts("unreserved", want))
		})
	}
	s.assertFindings()
	return took
}

func isLost(f lab.Finding, p *pod, ip netip.Addr) bool {
	return f.Kind == "unreserved" && f.IP == ip && f.Netns == p.NetnsName() && f.Pod != nil && *f.Pod == p.ref()
}

// waitLeaked waits until `dupip audit` and the metrics say of so many addresses that nobody holds them.
func (m *machine) waitLeaked(count int) {
	m.s.Helper()
	// The runtime may have listed a sandbox in the moment between the end of its network and its own. It is asked again after a minute.
	m.s.Do(lab.Poll(m.s.Context(), time.Minute+lab.Patience(20*time.Second), func() error {
		found, err := m.findings()
		leaks := 0
		for _, f := range found {
			if f.Kind == "unheld" {
				leaks++
			}
		}
		if leaks != count {
			return fmt.Errorf("%d leaks, want %d: %v, %w", leaks, count, found, err)
		}
		return errors.Join(err, m.counts("unheld", count))
	}))
}

// findings are those that `dupip audit` prints.
func (m *machine) findings() ([]lab.Finding, error) {
	text, err := m.agent.CLI(m.s.Context(), "audit", "-o", "json")
	if err != nil {
		return nil, err
	}
	var doc struct{ Findings []lab.Finding }
	err = json.Unmarshal([]byte(text), &doc)
	return doc.Findings, err
}

// counts returns an error unless the metrics have at least so many findings of a kind.
func (m *machine) counts(kind string, least int) error {
	page, err := m.page()
	if err != nil {
		return err
	}
	series := fmt.Sprintf("dupip_audit_findings{kind=%q}", kind)
	if got, ok := page[series]; !ok || got < float64(least) {
		return fmt.Errorf("%s is %v, want %d", series, got, least)
	}
	return nil
}

// waitLeft waits until the metrics say which part of the network's range is left.
func (m *machine) waitLeft(want float64) {
	m.s.Helper()
	m.s.Eventually("what is left of the range", func() error {
		page, err := m.page()
		if err != nil {
			return err
		}
		series := page.Find("dupip_ipam_range_left_ratio")
		if len(series) == 0 {
			return errors.New("there is no metric of it")
		}
		if got := page[series[0]]; got < want-0.001 || got > want+0.001 {
			return fmt.Errorf("%s is %v, want %v", series[0], got, want)
		}
		return nil
	})
}

// assertFindings fails the test if any machine's audit has ever had a finding that is not about the
// address of a pod that was freed, or about a leak, where this play has leaks.
func (s *testCluster) assertFindings() {
	s.Helper()
	for _, m := range s.machines {
		if m.audits == nil {
			continue // its agent comes later
		}
		if m.audits.Read().IsZero() {
			s.Fatal(fmt.Errorf("the agent on %s has read no books", m.name))
		}
		for _, f := range m.audits.Seen() {
			if f.Kind == "unheld" && m.leaks {
				continue
			}
			if f.Kind == "unheld" || f.Pod == nil || !slices.ContainsFunc(s.freed, func(p *pod) bool {
				return p.m == m && slices.Contains(p.IPs, f.IP) && f.Netns == p.NetnsName() && *f.Pod == p.ref() && f.First.After(p.freed)
			}) {
				s.Fatal(fmt.Errorf("false finding on %s: %v, for %v", m.name, f.Finding, f.Last.Sub(f.First)))
			}
		}
	}
}

// explains waits until `dupip explain` prints these texts about an address, whatever the lines.
func (m *machine) explains(ip netip.Addr, texts ...string) {
	m.s.Helper()
	m.s.Eventually("explanation of "+ip.String(), func() error {
		out, err := m.agent.CLI(m.s.Context(), "explain", ip.String())
		flat := strings.Join(strings.Fields(out), " ")
		for _, text := range texts {
			if !strings.Contains(flat, text) {
				return fmt.Errorf("without %q: %s, %w", text, out, err)
			}
		}
		return err
	})
}
