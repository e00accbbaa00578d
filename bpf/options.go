package bpf

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"maps"
	"math/bits"
	"os"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Mode says how programs are attached to interfaces.
type Mode string

// The modes.
const (
	// Auto is TCX where the kernel has it, else TC.
	Auto Mode = "auto"
	// TCX is a link before all tc programs. Linux 6.6 or newer.
	TCX Mode = "tcx"
	// TC is a cls_bpf filter with priority 1 on a clsact or ingress qdisc.
	TC Mode = "tc"
	// XDP runs before the kernel makes a socket buffer. It makes TCP through a veth much slower, because
	// it disables segmentation offload there.
	XDP Mode = "xdp"
)

// ParseMode validates the name of a mode.
func ParseMode(s string) (Mode, error) {
	switch mode := Mode(s); mode {
	case Auto, TCX, TC, XDP:
		return mode, nil
	}
	return "", fmt.Errorf("unknown attach mode %q: use auto, tcx, tc or xdp", s)
}

// Options configure [Load]. A zero field means its default, which the C sources have: also how long an unchanged address is not
// recorded again, and how many records a second an interface may cause (include/config.h).
type Options struct {
	// Mode defaults to Auto.
	Mode Mode
	// RingBytes is the size of the ring of records, rounded up to a power of two of at least one
	// page. Default 1 MiB, about 16,000 records.
	RingBytes int
	// MaxAddresses limits the kernel's table of addresses; a new one replaces the least recently
	// used. Default 65,536.
	MaxAddresses int
	// MaxInterfaces limits the interfaces that are attached at one time. Default 4,096.
	MaxInterfaces int
	// SolicitMAC is the beginning of the sources of the caller's own probes. Answers sent to them have their own bucket of
	// the same rate as other answers, of which one address can use a tenth. Zero for none.
	SolicitMAC [3]byte
	// Constants take the place of those of include/config.h, for tests.
	Constants map[string]uint64
}

// apply writes the options into maps and constants before they are loaded.
func (o Options) apply(spec *ebpf.CollectionSpec) error {
	if o.RingBytes > 0 {
		o.RingBytes = 1 << bits.Len(uint(max(o.RingBytes, os.Getpagesize())-1))
	}
	for name, entries := range map[string]int{"records": o.RingBytes, "addresses": o.MaxAddresses, "interfaces": o.MaxInterfaces} {
		spec.Maps[name].MaxEntries = cmp.Or(uint32(entries), spec.Maps[name].MaxEntries)
	}

	// The tick of the kernel, by which the program measures time.
	var tick unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &tick); err != nil {
		return fmt.Errorf("read the length of a tick: %w", err)
	}
	var solicitMAC [8]byte
	copy(solicitMAC[:], o.SolicitMAC[:])
	if err := spec.Variables["secrets"].Set(secrets()); err != nil {
		return fmt.Errorf("set the secrets: %w", err)
	}
	constants := map[string]uint64{"tick_ns": uint64(tick.Nano()), "solicit_mac": binary.LittleEndian.Uint64(solicitMAC[:])}
	maps.Copy(constants, o.Constants)
	for name, value := range constants {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	return nil
}

// secrets makes what the digests of include/cache.h are made with. A test may replace it.
var secrets = func() (all [9]uint64) {
	for i := range all {
		all[i] = oddNumber()
	}
	return all
}

// oddNumber returns an odd number that nobody can guess.
func oddNumber() uint64 {
	var bytes [8]byte
	_, _ = rand.Read(bytes[:]) // never fails
	return binary.LittleEndian.Uint64(bytes[:]) | 1
}
