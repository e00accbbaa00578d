package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
)

// batch is how many addresses are read with one system call.
const batch = 4096

// address and known are struct address and struct known of include/.
type (
	address [32]byte
	known   [32]byte
)

// ifindex and generation of the interface that an address was seen at.
func (a *address) ifindex() int       { return int(binary.LittleEndian.Uint32(a[16:])) }
func (a *address) generation() uint32 { return binary.LittleEndian.Uint32(a[20:]) }

// Prune removes the addresses of detached interfaces from the kernel's table, and returns how many, so
// that data about deleted pods is not kept. The error matches [os.ErrClosed] after Close.
func (o *Observer) Prune() (removed int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return 0, fmt.Errorf("prune the addresses: %w", os.ErrClosed)
	}
	keys, values := make([]address, batch), make([]known, batch)
	var stale []address
	var cursor ebpf.MapBatchCursor
	for seen := 0; seen < 2*int(o.addresses.MaxEntries())+batch; {
		n, err := o.addresses.BatchLookup(&cursor, keys, values, nil)
		for i := range keys[:n] {
			attachment := o.attached[keys[i].ifindex()]
			if attachment == nil || attachment.generation != keys[i].generation() {
				stale = append(stale, keys[i])
			}
		}
		if seen += n; errors.Is(err, ebpf.ErrKeyNotExist) {
			break
		}
		if err != nil {
			return 0, fmt.Errorf("list the addresses: %w", err)
		}
	}
	for i := range stale {
		// The kernel may have replaced it.
		if err := o.addresses.Delete(&stale[i]); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return removed, fmt.Errorf("remove an address: %w", err)
		}
		removed++
	}
	return removed, nil
}
