package bpf

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// CheckCapabilities returns an error that names the capabilities that [Load] needs and the calling
// thread lacks.
func CheckCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("read the capabilities of this process: %w", err)
	}
	has := func(number int) bool { return data[number/32].Effective&(1<<(number%32)) != 0 }

	var missing, smaller []string
	if !has(unix.CAP_NET_ADMIN) {
		missing = append(missing, "CAP_NET_ADMIN")
	}
	// CAP_SYS_ADMIN includes the other two. The error names it, because entering network namespaces
	// needs it as well.
	if !has(unix.CAP_SYS_ADMIN) {
		if !has(unix.CAP_BPF) {
			smaller = append(smaller, "CAP_BPF")
		}
		if !has(unix.CAP_PERFMON) {
			smaller = append(smaller, "CAP_PERFMON")
		}
		if len(smaller) > 0 {
			missing = append(missing, "CAP_SYS_ADMIN (which includes "+strings.Join(smaller, " and ")+")")
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("load the bpf program: %w: run as root or add %s", os.ErrPermission, strings.Join(missing, ", "))
}

// CheckKernel probes for what the programs need in every mode and old kernels lack. The error matches
// [ebpf.ErrNotSupported] if it is missing, and [os.ErrPermission] if the probe was forbidden. Like Load it raises the
// process's limit of locked memory.
func CheckKernel() error {
	// All else that the programs need is older (TestObjectIsOldEnough), or Load and Attach try it.
	raiseMemlock()
	if err := features.HaveMapType(ebpf.RingBuf); err != nil {
		return fmt.Errorf("making a ring buffer of BPF, which Linux has since 5.8: %w", err)
	}
	return nil
}

// ResolveMode returns the mode in which [Load] with this mode would attach: TCX, TC or XDP, never Auto. It replaces
// Auto by a mode of this kernel, and refuses TCX where it is missing. Errors are those of Load.
func ResolveMode(mode Mode) (Mode, error) {
	if err := CheckCapabilities(); err != nil {
		return "", err
	}
	raiseMemlock()
	mode, err := ParseMode(string(cmp.Or(mode, Auto)))
	if err != nil || mode != Auto && mode != TCX {
		return mode, err
	}
	has, err := HasTCX()
	switch {
	case err != nil:
		return "", explainLoad(err)
	case has:
		return TCX, nil
	case mode == TCX:
		return "", fmt.Errorf("attach mode tcx needs Linux 6.6, this is %s: use auto or tc: %w", kernelRelease(), ebpf.ErrNotSupported)
	}
	return TC, nil
}

// HasTCX reports whether the kernel has tcx, or why that cannot be probed.
func HasTCX() (bool, error) {
	// It attaches a program to an interface that cannot exist. Only a kernel with tcx returns ENODEV.
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type:         ebpf.SchedCLS,
		License:      "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()},
	})
	if err != nil {
		return false, fmt.Errorf("load a program to probe for tcx: %w", err)
	}
	defer func() { _ = program.Close() }()

	attached, err := link.AttachTCX(link.TCXOptions{
		Interface: math.MaxInt32,
		Program:   program,
		Attach:    ebpf.AttachTCXIngress,
	})
	switch {
	case err == nil:
		return false, errors.Join(errors.New("probe for tcx: interface 2147483647 exists"), attached.Close())
	case errors.Is(err, unix.ENODEV):
		return true, nil
	case errors.Is(err, ebpf.ErrNotSupported):
		return false, nil
	}
	return false, fmt.Errorf("probe for tcx: %w", err)
}

// InCgroups reports whether memory of BPF counts for the control group, as since Linux 5.11, and not as locked memory; or why that cannot be
// probed. For a moment the process may lock no memory, so that at that time nothing else can be loaded before Linux 5.11.
func InCgroups() (in bool, err error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		return false, fmt.Errorf("read the limit of locked memory: %w", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Max: limit.Max}); err != nil {
		return false, fmt.Errorf("lower the limit of locked memory: %w", err)
	}
	refused := makeMap()
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		return false, fmt.Errorf("restore the limit of locked memory: %w", err)
	}
	if refused == nil {
		return true, nil
	}
	return false, makeMap()
}

// makeMap makes the smallest map, to see whether it may.
func makeMap() error {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		return fmt.Errorf("make a map: %w", err)
	}
	return m.Close()
}

// raiseMemlock lets this process lock any amount of memory, or as much as it may: before Linux 5.11 maps and programs count as that.
// Where it is too little, explainLoad says so.
func raiseMemlock() {
	limit := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if unix.Setrlimit(unix.RLIMIT_MEMLOCK, &limit) != nil && unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) == nil {
		limit.Cur = limit.Max
		_ = unix.Setrlimit(unix.RLIMIT_MEMLOCK, &limit)
	}
}

func kernelRelease() string {
	var name unix.Utsname
	_ = unix.Uname(&name) // fails for a bad address only
	return unix.ByteSliceToString(name.Release[:])
}
