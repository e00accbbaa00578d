package bpf

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// more is a program that is loaded when it is needed first, beside the first one and with its maps: few nodes have such
// interfaces, and it needs the types of the running kernel, which takes longer.
type more struct {
	*ebpf.Collection
	err error // why it cannot be loaded
}

// loadMore loads a program, unless it is loaded. Where the kernel lacks what it needs, that is not tried again. The caller holds mu.
func (o *Observer) loadMore(name string) (*ebpf.Collection, error) {
	if done, ok := o.more[name]; ok {
		return done.Collection, done.err
	}
	spec, err := specOf(name)
	if err != nil {
		return nil, err
	}
	for name, shared := range o.collection.Maps {
		spec.Maps[name].MaxEntries = shared.MaxEntries()
	}
	spec.Maps["inside_devices"].MaxEntries = o.interfaces.MaxEntries()
	if name != "dupip_inside" {
		withoutInside(spec)
	}
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: o.collection.Maps})
	if err != nil {
		err = fmt.Errorf("load the bpf program %s, which needs CONFIG_DEBUG_INFO_BTF, and Linux 6.6 (inside a netns) or 6.7 (netkit): %w", name, err)
	}
	if err == nil || errors.Is(err, ebpf.ErrNotSupported) {
		o.more[name] = more{collection, err}
	}
	return collection, err
}

// specOf is what is loaded for one of the programs.
func specOf(name string) (*ebpf.CollectionSpec, error) {
	spec, err := loadObserver()
	if err != nil {
		return nil, fmt.Errorf("read the bpf objects: %w", err)
	}
	for other := range spec.Programs {
		if other != name {
			delete(spec.Programs, other)
		}
	}
	for _, program := range spec.Programs {
		// The processors that dupip is built for read at any address. User-mode Linux, which runs on them, does not know that.
		program.Flags |= unix.BPF_F_ANY_ALIGNMENT
	}
	return spec, nil
}

// withoutInside leaves out the maps that only the program for devices inside another netns has.
func withoutInside(spec *ebpf.CollectionSpec) {
	delete(spec.Maps, "inside_devices")
	delete(spec.Maps, "inside_cache")
}
