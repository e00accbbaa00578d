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

// Rate is a token bucket: Burst at once, PerSecond on average. A zero field means its default.
type Rate struct{ PerSecond, Burst int }

// Options configure [Load]. A zero field means its default.
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

func (o Options) withDefaults() (Options, error) {
	if o.Mode == "" {
		o.Mode = Auto
	}
	if _, err := ParseMode(string(o.Mode)); err != nil {
		return o, err
	}
	for _, field := range []struct {
		name     string
		value    *int
		fallback int
		limit    int
	}{
		{"RingBytes", &o.RingBytes, 1 << 20, 1 << 30},
		{"MaxAddresses", &o.MaxAddresses, 65536, 1 << 24},
		{"MaxInterfaces", &o.MaxInterfaces, 4096, 1 << 20},
		{"DataRate.PerSecond", &o.DataRate.PerSecond, 10, 1e6},
		{"DataRate.Burst", &o.DataRate.Burst, 64, 1e6},
		{"AnnounceRate.PerSecond", &o.AnnounceRate.PerSecond, 50, 1e6},
		{"AnnounceRate.Burst", &o.AnnounceRate.Burst, 100, 1e6},
		{"RefreshRate.PerSecond", &o.RefreshRate.PerSecond, 20, 1e6},
		{"RefreshRate.Burst", &o.RefreshRate.Burst, 256, 1e6},
		{"AnswerRate.PerSecond", &o.AnswerRate.PerSecond, 200, 1e6},
		{"AnswerRate.Burst", &o.AnswerRate.Burst, 400, 1e6},
	} {
		if *field.value < 0 || *field.value > field.limit {
			return o, fmt.Errorf("%s is %d: it must be 0 (the default) to %d", field.name, *field.value, field.limit)
		}
		if *field.value == 0 {
			*field.value = field.fallback
		}
	}
	if o.Refresh < 0 {
		return o, fmt.Errorf("refresh is %v: it must not be negative", o.Refresh)
	}
	if o.MACChange < 0 {
		return o, fmt.Errorf("MACChange is %v: it must not be negative", o.MACChange)
	}
	o.Refresh = cmp.Or(o.Refresh, 30*time.Second)
	o.MACChange = cmp.Or(o.MACChange, 5*time.Second)
	o.RingBytes = 1 << bits.Len(uint(max(o.RingBytes, os.Getpagesize())-1))
	return o, nil
}

// addressShare: one address can use a tenth of the bucket for answers to us.
const addressShare = 10

// apply writes the options into maps and constants before they are loaded.
func (o Options) apply(spec *ebpf.CollectionSpec) error {
	spec.Maps["records"].MaxEntries = uint32(o.RingBytes)
	spec.Maps["addresses"].MaxEntries = uint32(o.MaxAddresses)
	spec.Maps["interfaces"].MaxEntries = uint32(o.MaxInterfaces)

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
		token := uint64(time.Second) / uint64(rate.PerSecond)
		constants[name+"_token_ns"] = token
		constants[name+"_full_ns"] = token * uint64(rate.Burst)
	}
	constants["share_token_ns"] = addressShare * constants["answer_token_ns"]
	constants["share_full_ns"] = max(constants["share_token_ns"], constants["answer_full_ns"]) // at least one
	for name, value := range constants {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	return nil
}
