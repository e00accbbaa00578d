package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// clusterStatus is an agent's status of its part in the cluster.
type clusterStatus struct {
	Alone    bool              `json:"alone"`
	Leases   int               `json:"leases"`
	Kept     int               `json:"leasesKept"`
	Dropped  map[string]uint64 `json:"dropped"`
	Received map[string]uint64 `json:"received"`
	Problems []string          `json:"problems"`
}

func (s *testCluster) status(a *lab.Agent) (clusterStatus, error) {
	var doc struct{ Cluster clusterStatus }
	body, err := a.Client.Get(s.Context(), "/v1/status", "")
	if err != nil {
		return doc.Cluster, err
	}
	defer body.Close()
	return doc.Cluster, json.NewDecoder(body).Decode(&doc)
}

// waitProblem waits until an agent has a problem whose text contains all of these words, and its
// metrics and `dupip status` have it, too. It returns after what time.
func (s *testCluster) waitProblem(a *lab.Agent, within time.Duration, words ...string) time.Duration {
	s.Helper()
	began := time.Now()
	eventually(s.T, within, fmt.Sprintf("%s reports %q", a.Node.ShortName(), words), func() error {
		status, err := s.status(a)
		if err != nil {
			return err
		}
		if !hasAll(status.Problems, words) {
			return fmt.Errorf("its problems are %q", status.Problems)
		}
		return nil
	})
	took := time.Since(began)
	m, err := a.Scrape(s.Context())
	s.Do(err)
	if m["dupip_gossip_problems"] < 1 {
		s.Errorf("%s: dupip_gossip_problems is %v", a.Node.ShortName(), m["dupip_gossip_problems"])
	}
	text, err := a.CLI(s.Context(), "status")
	s.Do(err)
	if text = strings.Join(strings.Fields(text), " "); !hasAll([]string{text}, words) {
		s.Errorf("%s: dupip status lacks %q: %s", a.Node.ShortName(), words, text)
	}
	return took
}

func hasAll(texts, words []string) bool {
	for _, text := range texts {
		all := true
		for _, word := range words {
			all = all && strings.Contains(text, word)
		}
		if all {
			return true
		}
	}
	return false
}

// waitNoProblem waits until an agent has no problem.
func (s *testCluster) waitNoProblem(a *lab.Agent, within time.Duration) {
	s.Helper()
	eventually(s.T, within, a.Node.ShortName()+" is content", func() error {
		status, err := s.status(a)
		if err == nil && len(status.Problems) > 0 {
			err = errors.New(strings.Join(status.Problems, "; "))
		}
		return err
	})
}
