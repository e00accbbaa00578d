package bench

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dupip/dupip/tests/cri"
	"github.com/dupip/dupip/tests/lab"
)

// measureBooks compares agents that read large stores of host-local with one that reads none, at the same time and on
// nodes with as many pods. All reservations are of sandboxes that do not exist, which costs most. The containerd of all is
// empty.
func measureBooks(b *bench) {
	pods := b.pods[len(b.pods)-1]
	b.title("AN AGENT THAT READS BOOKS: CPU OF A CORE, MEMORY (%d pods, medians of %d times %s)", pods, b.readings, b.reading)
	r, err := cri.New(b.Lab, b.Node(""), cri.Options{Plugins: []map[string]any{{"type": "ptp", "ipam": cri.HostLocal("10.99.0.0/24")}}})
	b.Do(err, r.Start(b.Context()))
	confs, stores := []string{"off"}, []string(nil)
	for _, size := range b.reservations {
		conf, store := b.makeStore(filepath.Join(r.Dir(), fmt.Sprint("store", size)), size)
		confs, stores = append(confs, conf), append(stores, store)
	}
	var agents []*lab.Agent
	for _, dir := range confs {
		n := b.Node("")
		b.populate(n, pods)
		agents = append(agents, b.Agent(n, "--log-level", "info", "--cri-socket", r.Socket, "--cni-conf-dir", dir, "--unheld-after", "1s"))
	}
	for _, a := range agents {
		b.eventually(func() error {
			if got := announced(b.status(a)); got < 2*pods {
				return fmt.Errorf("the agent has %d of %d addresses", got, 2*pods)
			}
			return nil
		})
	}
	for _, a := range agents[1:] {
		b.eventually(func() error {
			if out, err := a.CLI(b.Context(), "audit", "-o", "json"); err != nil || !strings.Contains(out, `"unheld"`) {
				return fmt.Errorf("it has not read the store: %w", err)
			}
			return nil
		})
	}
	b.booksRows("the folder does not change", "≤ 0.05% and 5 MB more", agents, func() { b.pause(b.reading) })
	b.booksRows("it changes once a second", "≤ 0.3% and 5 MB more", agents, func() {
		for end, n := time.Now().Add(b.reading), 0; time.Now().Before(end); n++ {
			for _, store := range stores {
				if one := filepath.Join(store, "10.64.255.1"); n%2 == 0 {
					b.Do(os.WriteFile(one, []byte(strings.Repeat("0123456789abcdef", 4)+"\r\neth0"), 0o600))
				} else {
					b.Do(os.Remove(one))
				}
			}
			b.pause(min(time.Second, b.reading))
		}
		for _, store := range stores {
			_ = os.Remove(filepath.Join(store, "10.64.255.1"))
		}
	})
}

// booksRows measures all agents at the same time; the first reads no books.
func (b *bench) booksRows(what, goal string, agents []*lab.Agent, during func()) {
	b.Helper()
	cpu, memory := make([][]float64, len(agents)), make([][]float64, len(agents))
	for range b.readings {
		for i, u := range b.use(agents, during) {
			cpu[i], memory[i] = append(cpu[i], u.cpu), append(memory[i], u.memory)
		}
	}
	for i, size := range b.reservations {
		b.row(fmt.Sprintf("%d reservations, %s", size, what), goal, "%.3f%%, %.1f MB; without books %.3f%%, %.1f MB",
			100*median(cpu[i+1]), median(memory[i+1])/1e6, 100*median(cpu[0]), median(memory[0])/1e6)
	}
}

// makeStore makes a configuration and the store of its network in a new folder.
func (b *bench) makeStore(dir string, reservations int) (conf, store string) {
	b.Helper()
	conf, store = filepath.Join(dir, "conf"), filepath.Join(dir, "large", "large")
	config, err := json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": "large", "plugins": []any{map[string]any{
		"type": "bridge", "ipam": map[string]any{"type": "host-local", "subnet": "10.64.0.0/16", "dataDir": filepath.Dir(store)},
	}}})
	b.Do(err, os.MkdirAll(conf, 0o755), os.MkdirAll(store, 0o755), os.WriteFile(filepath.Join(conf, "large.conflist"), config, 0o644))
	ip := netip.MustParseAddr("10.64.0.2")
	for i := range reservations {
		b.Do(os.WriteFile(filepath.Join(store, ip.String()), fmt.Appendf(nil, "%064x\r\neth0", i), 0o600))
		ip = ip.Next()
	}
	return conf, store
}
