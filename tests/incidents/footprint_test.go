package incidents

import (
	"errors"
	"fmt"
	"strings"

	"github.com/dupip/dupip/tests/lab"
)

// footprint is what an agent holds.
type footprint struct {
	// files are open descriptors, netns those of them that are network namespaces.
	files, netns int
	goroutines   int
	// records are the entries of its BPF hash maps.
	records              int
	interfaces, bindings int // bindings of pods
	// memory is resident, in MiB. It is for the log only: it grows when the garbage
	// collector has not run.
	memory float64
}

func (f footprint) String() string {
	return fmt.Sprintf("%d descriptors (%d netns), %d goroutines, %d BPF records, %d interfaces, %d bindings, %.1f MiB",
		f.files, f.netns, f.goroutines, f.records, f.interfaces, f.bindings, f.memory)
}

// exceeds returns an error if it holds more of anything than the other one did.
func (f footprint) exceeds(g footprint) error {
	if f.files > g.files || f.netns > g.netns || f.goroutines > g.goroutines || f.records > g.records ||
		f.interfaces > g.interfaces || f.bindings > g.bindings {
		return fmt.Errorf("the agent holds %v; it was %v", f, g)
	}
	return nil
}

// plus is a little more of what comes and goes by itself: connections and their goroutines.
func (f footprint) plus(n int) footprint {
	f.files += n
	f.goroutines += 2 * n
	return f
}

// footprint measures the machine's agent.
func (m *machine) footprint() (f footprint, err error) {
	metrics, err := m.metrics()
	if err != nil {
		return f, err
	}
	f.goroutines = int(metrics["go_goroutines"])
	f.memory = metrics["process_resident_memory_bytes"] / (1 << 20)
	for _, series := range metrics.Find("dupip_interfaces") {
		f.interfaces += int(metrics[series])
	}
	for _, series := range metrics.Find("dupip_bindings") {
		// The node's own addresses, those of host ends too, are listed now and then.
		if !strings.Contains(series, `evidence="host"`) {
			f.bindings += int(metrics[series])
		}
	}
	used, err := lab.UsageOf(m.agent.PID())
	if err != nil {
		return f, err
	}
	f.files, f.netns = used.Files, used.Netns
	f.records, err = lab.MapEntries(m.agent.PID())
	return f, err
}

// metrics are those of the machine's agent, from a page that was made after the call began: the
// agent makes one at most once a second.
func (m *machine) metrics() (metrics lab.Metrics, err error) {
	const made = "go_memstats_mallocs_total" // another number in each page
	first, err := m.page()
	if err != nil {
		return nil, err
	}
	m.s.Eventually("a new page of metrics", func() error {
		if metrics, err = m.page(); err == nil && metrics[made] == first[made] {
			err = errors.New("it is the same page")
		}
		return err
	})
	return metrics, nil
}

// page is the agent's page of metrics, which may be a second old.
func (m *machine) page() (lab.Metrics, error) {
	const port = 9951
	response, err := m.agent.Get(m.s.Context(), port, "/metrics")
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	return lab.ReadMetrics(response.Body)
}
