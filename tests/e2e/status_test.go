package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/dupip/dupip/tests/lab"
)

// status is what the tests here read of the agent's status document.
type status struct {
	Interfaces []interfaceStatus
	ByState    map[string]int    `json:"interfacesByState"`
	Bindings   map[string]int    `json:"bindingsByEvidence"`
	Conflicts  map[string]int    `json:"openConflictsByState"`
	Dropped    map[string]uint64 `json:"dropped"`
	Pending    int               `json:"recordsPending"`
	Resyncs    int               `json:"netlinkOverruns"`

	HostAddresses        []string `json:"hostAddresses"`
	HostAddressesOmitted int      `json:"hostAddressesOmitted"`

	DADFailedCount int `json:"dadFailedAddresses"`
	DADFailed      []struct {
		Network   string
		IP        netip.Addr
		Interface string
		Netns     string
	} `json:"dadFailed"`
}

type interfaceStatus struct{ Name, Kind, State, Reason, Netns, Network string }

func statusOf(t *lab.T, a *lab.Agent) (status, error) {
	var s status
	body, err := a.Client.Get(t.Context(), "/v1/status", "")
	if err != nil {
		return s, err
	}
	defer body.Close()
	return s, json.NewDecoder(body).Decode(&s)
}

func interfaceOf(t *lab.T, a *lab.Agent, name string) (interfaceStatus, error) {
	s, err := statusOf(t, a)
	if err != nil {
		return interfaceStatus{}, err
	}
	for _, i := range s.Interfaces {
		if i.Name == name {
			return i, nil
		}
	}
	return interfaceStatus{}, fmt.Errorf("the agent does not know %s", name)
}
