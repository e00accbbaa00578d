package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
)

// key is struct address of include/address.h.
func (a *Address) key() (key address) {
	ip := a.IP.As16()
	copy(key[:], ip[:])
	binary.LittleEndian.PutUint32(key[16:], a.Ifindex)
	binary.LittleEndian.PutUint32(key[20:], a.Generation)
	binary.LittleEndian.PutUint16(key[24:], a.VLAN.Outer)
	binary.LittleEndian.PutUint16(key[26:], a.VLAN.Inner)
	return key
}

// Forget makes the observer record the next packet of each of these addresses, as if it had not recorded
// the address before: the limits for new addresses apply. It takes under a microsecond for each address,
// and costs each CPU's cache of each interface one miss. The error matches [os.ErrClosed] after Close.
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
	var failed error
	for len(keys) > 0 && failed == nil {
		n, err := o.addresses.BatchDelete(keys, nil)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			n++ // the kernel has replaced that one, and stopped there
		} else if err != nil {
			failed = fmt.Errorf("forget addresses: %w", err)
		}
		keys = keys[min(n, len(keys)):]
	}
	// Last: a program that finds the new epoch finds no forgotten address, and so fills no slot with one.
	return errors.Join(failed, o.renewEpoch())
}
