package core

import (
	"errors"
	"log/slog"
	"os"

	"github.com/dupip/dupip/agent/exchange"
	"github.com/dupip/dupip/bpf"
)

// forgetting has the addresses that the observer must forget, because another part has dropped what it
// knew of them. Otherwise the observer would not report them again for up to 30 s.
type forgetting struct {
	log    *slog.Logger
	forget func([]bpf.Address) error // [bpf.Observer.Forget]
	list   []bpf.Address
	failed bool
}

func (f *forgetting) add(address bpf.Address) { f.list = append(f.list, address) }

// run makes the observer forget the addresses of one turn.
func (f *forgetting) run() {
	if len(f.list) == 0 {
		return
	}
	err := f.forget(f.list)
	f.list = nil
	if failed := err != nil && !errors.Is(err, os.ErrClosed); failed != f.failed {
		if f.failed = failed; failed {
			f.log.Warn("removing addresses that have gone from the BPF map failed; if they come back, they are seen up to 30 s late", "error", err)
		}
	}
}

// ended makes the observer forget bindings that have ended, so that their next packets make records, and
// probes the addresses that are still configured in their pods.
func (c *Core) ended(all exchange.Ended) {
	for _, e := range all {
		if i := c.Table.Interface(e.Interface); i != nil { // else the observer has forgotten it with the interface
			for _, vlan := range i.VLANs(e.Key.Network) {
				c.forgetting.add(bpf.Address{Ifindex: e.Interface.Ifindex, Generation: e.Interface.Generation, IP: e.Key.IP, VLAN: vlan})
			}
		}
		for i := range c.Table.All() { // it may have been known through one of the pod's interfaces only
			if i.Holder != e.Holder {
				continue
			}
			if vlan, ok := i.Configures(e.Key); ok {
				c.Prober.Reprobe(i.Ref, e.Key, vlan, c.Now())
			}
		}
	}
}
