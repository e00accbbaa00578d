package bpf

import (
	"errors"
	"fmt"
	"math"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// explainLoad adds to the kernel's refusal of a program why, and what to do.
func explainLoad(err error) error {
	const what = "load the bpf program: "
	var refusal *ebpf.VerifierError
	switch missing := CheckKernel(); {
	case errors.As(err, &refusal) && len(refusal.Log) > 0:
		return fmt.Errorf(what+"the verifier of Linux %s does not understand it, which is a fault of dupip to report: %w", kernelRelease(), err)
	case errors.Is(missing, ebpf.ErrNotSupported):
		return fmt.Errorf(what+"this is Linux %s: %w", kernelRelease(), missing)
	}
	// Not the whole error: the library guesses why, and may say instead what the kernel lacks.
	errno := unix.Errno(0)
	if !errors.As(err, &errno) {
		errors.As(makeMap(), &errno)
	}
	if errno == unix.EPERM || errno == unix.EACCES || errno == unix.ENOSYS {
		return fmt.Errorf(what+"forbidden, though the capabilities are there: %s: %w", forbidder(errno), errno)
	}
	return fmt.Errorf(what+"%w", err)
}

// forbidder finds out what forbids BPF to a thread with the capabilities, by an error of loading, and says what to do. Lockdown does
// not: tests/vm boots with it.
func forbidder(refused unix.Errno) string {
	const unknown, lastID = 1 << 10, math.MaxInt32 // a command that no kernel has, and an id that no map has
	switch errno := ask(unknown, 0); {
	case errno == unix.ENOSYS:
		return "the kernel has no CONFIG_BPF_SYSCALL, or a seccomp filter hides the system call bpf: allow it in the profile"
	case errno != unix.EINVAL && filtered():
		// Before Linux 5.19 it may also be as below.
		return "a seccomp filter forbids the system call bpf, unless a security module withholds them: allow it in the profile"
	case errno != unix.EINVAL, ask(unix.BPF_MAP_GET_NEXT_ID, lastID-1) == unix.EPERM:
		return "a security module withholds them: allow them in its policy; the kernel's log says which"
	}
	// If all processes of the user have used up the limit, InCgroups cannot find out. SELinux says EACCES.
	var limit unix.Rlimit
	in, _ := InCgroups()
	if refused == unix.EPERM && !in && unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) == nil && limit.Cur != unix.RLIM_INFINITY {
		return fmt.Sprintf("before Linux 5.11 its memory counts as locked memory, of which all processes of this user may have %d bytes together: "+
			"add CAP_SYS_RESOURCE (securityContext.lockMemory of the chart), or LimitMEMLOCK=infinity", limit.Cur)
	}
	return "a security module forbids it, perhaps SELinux: the kernel's log says which"
}

// ask returns the error of a command of BPF, whose first attribute is a number.
func ask(command int, attribute uint32) unix.Errno {
	attributes := [3]uint32{attribute}
	_, _, errno := unix.Syscall(unix.SYS_BPF, uintptr(command), uintptr(unsafe.Pointer(&attributes)), unsafe.Sizeof(attributes))
	return errno
}

// filtered reports whether a seccomp filter may refuse system calls of this thread.
func filtered() bool {
	mode, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0)
	return err == nil && mode != 0
}
