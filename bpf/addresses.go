package bpf

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
)

// batch is how many addresses are read with one system call.
const batch = 4096

// address and known are struct address and struct known of include/.
type (
	address struct {
		IP           [16]byte
		Ifindex      uint32
		Outer, Inner uint16 // VLAN ids
	}
	known struct {
		_          [32]byte
		Generation uint64 // of the interface
	}
)

// key is what the kernel's tables have for an address.
func (a *Address) key() address {
	return address{IP: a.IP.As16(), Ifindex: a.Ifindex, Outer: a.VLAN.Outer, Inner: a.VLAN.Inner}
}

// Forget makes the observer record the next packet of each of these addresses, as if it had not recorded
// the address before: the limits for new addresses apply. The generation does not matter. It takes under a
// microsecond for each address, and costs each address that sends one miss of the cache. The error matches [os.ErrClosed] after Close.
func (o *Observer) Forget(addresses []Address) error {
	keys := make([]address, len(addresses))
	for i := range addresses {
		keys[i] = addresses[i].key()
	}
	o.tableMu.Lock()
	defer o.tableMu.Unlock()
	if o.unloaded {
		return fmt.Errorf("forget addresses: %w", os.ErrClosed)
	}
	err := o.remove(keys)
	// Last: a program that finds the new epoch finds no forgotten address, and so fills no line with one.
	return errors.Join(err, o.renewEpoch())
}

// Prune removes the addresses of detached interfaces from the kernel's table, so that data about deleted pods is not kept. The
// error matches [os.ErrClosed] after Close.
func (o *Observer) Prune() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return fmt.Errorf("prune the addresses: %w", os.ErrClosed)
	}
	keys, values := make([]address, batch), make([]known, batch)
	var stale []address
	var cursor ebpf.MapBatchCursor
	for seen := 0; seen < 2*int(o.addresses.MaxEntries())+batch; {
		n, err := o.addresses.BatchLookup(&cursor, keys, values, nil)
		for i, key := range keys[:n] {
			if attachment := o.attached[int(key.Ifindex)]; attachment == nil || uint64(attachment.generation) != values[i].Generation {
				stale = append(stale, key)
			}
		}
		if seen += n; errors.Is(err, ebpf.ErrKeyNotExist) {
			break
		}
		if err != nil {
			return fmt.Errorf("list the addresses: %w", err)
		}
	}
	return o.remove(stale)
}

// remove removes addresses from the kernel's table, if they are there.
func (o *Observer) remove(keys []address) error {
	for len(keys) > 0 {
		n, err := o.addresses.BatchDelete(keys, nil)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			n++ // the kernel has replaced that one, and stopped there
		} else if err != nil {
			return fmt.Errorf("remove an address: %w", err)
		}
		keys = keys[min(n, len(keys)):]
	}
	return nil
}
