package bpf

import (
	"errors"
	"fmt"
	"os"
)

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
	err := o.remove(keys)
	if err != nil {
		err = fmt.Errorf("forget addresses: %w", err)
	}
	// Last: a program that finds the new epoch finds no forgotten address, and so fills no slot with one.
	return errors.Join(err, o.renewEpoch())
}
