package bpf

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/bits"
	"os"
	"time"

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

// Rate is a token bucket: Burst at once, PerSecond on average. It has both or none.
type Rate struct{ PerSecond, Burst int }

// Options configure [Load]. A zero field means its default, which the C sources have.
type Options struct {
	// Mode defaults to Auto.
	Mode Mode
	// RingBytes is the size of the ring of records, rounded up to a power of two of at least one
	// page. Default 1 MiB, about 18,000 records.
	RingBytes int
	// MaxAddresses limits the kernel's table of addresses; a new one replaces the least recently
	// used. Default 65,536.
	MaxAddresses int
	// MaxInterfaces limits the interfaces that are attached at one time. Default 4,096.
	MaxInterfaces int
	// Refresh is how long an unchanged address is not recorded again. Default 30 s.
	Refresh time.Duration
	// MACChange is how long after a record of an address another MAC is not recorded, because MACs may
	// alternate with every packet. Default 5 s.
	MACChange time.Duration
	// DataRate limits, per interface, addresses first seen as the source of a packet.
	// Default 10/s, burst 64.
	DataRate Rate
	// AnnounceRate limits, per interface, addresses first announced, and tentative ones. Gratuitous
	// packets have a bucket of their own of the same rate. Default 50/s, burst 100.
	AnnounceRate Rate
	// RefreshRate limits, per interface, addresses recorded again, after Refresh or with another MAC.
	// Default 20/s, burst 256.
	RefreshRate Rate
	// AnswerRate limits, per interface, records of kind [Answer].
	// Default 200/s, burst 400.
	AnswerRate Rate
	// SolicitMAC is the source of the caller's own probes. Answers sent to it have their own bucket of
	// AnswerRate, of which one address can use a tenth. Zero for none.
	SolicitMAC [6]byte
}

// addressShare: one address can use a tenth of the bucket for answers to us.
const addressShare = 10

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
	constants := map[string]uint64{
		"refresh_ns":  uint64(o.Refresh),
		"change_ns":   uint64(o.MACChange),
		"tick_ns":     uint64(tick.Nano()),
		"solicit_mac": binary.LittleEndian.Uint64(solicitMAC[:]),
	}
	for name, rate := range map[string]Rate{
		"data": o.DataRate, "announced": o.AnnounceRate, "refresh": o.RefreshRate, "answer": o.AnswerRate,
	} {
		if rate != (Rate{}) {
			constants[name+"_token_ns"] = uint64(time.Second) / uint64(rate.PerSecond)
			constants[name+"_full_ns"] = constants[name+"_token_ns"] * uint64(rate.Burst)
		}
	}
	constants["share_token_ns"] = addressShare * constants["answer_token_ns"]
	constants["share_full_ns"] = max(constants["share_token_ns"], constants["answer_full_ns"]) // at least one
	for name, value := range constants {
		if value == 0 {
			continue
		}
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	return nil
}
