package bpf

import (
	"math"
	"strings"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/internal/testneeds"
)

// wantRefused expects one line with these words, and none of those that would send people elsewhere.
func wantRefused(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Error("loaded")
		return
	}
	t.Log(err)
	text := err.Error()
	if !strings.HasPrefix(text, "load the bpf program: ") || strings.Contains(text, "\n") {
		t.Errorf("not one line about the load: %q", text)
	}
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("%q, want a word of %q", text, word)
		}
	}
	for _, other := range []string{"seccomp", "AppArmor", "SELinux", "locked memory", "verifier", "lockdown"} {
		if strings.Contains(text, other) && !strings.Contains(strings.Join(words, " "), other) {
			t.Errorf("%q speaks of %s", text, other)
		}
	}
}

// tryLoad loads, and returns the error.
func tryLoad() error {
	o, err := Load(Options{Mode: TC})
	if err == nil {
		err = o.Close()
	}
	return err
}

// TestForbidden: each thing that may forbid the system call is named, and no other. TestMissingCapabilities has the capabilities.
func TestForbidden(t *testing.T) {
	testneeds.Root(t)
	// The process's limit is changed below, so that nothing may run beside it. The library keeps what it found out about the kernel, also if it was forbidden to ask.
	if err := tryLoad(); err != nil {
		t.Fatal(err)
	}
	forbid := func(number, command uint32, errno unix.Errno) error {
		const nr, arg0 = 0, 16 // in struct seccomp_data
		filter := []unix.SockFilter{
			{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: nr},
			{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: number, Jf: 3},
			{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: arg0},
			{Code: unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K, K: command, Jt: 1},
			{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
			{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		}
		program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return err
		}
		return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
	}
	t.Run("seccomp", func(t *testing.T) {
		// The filter stays with the thread, which ends.
		wantRefused(t, onThread(func() error {
			if err := forbid(unix.SYS_BPF, math.MaxUint32, unix.EPERM); err != nil {
				return err
			}
			return tryLoad()
		}), "a seccomp filter forbids")
	})
	t.Run("a security module", func(t *testing.T) {
		// As SELinux, which asks for each command (selinux_bpf, security/selinux/hooks.c; avc_denied, avc.c).
		wantRefused(t, onThread(func() error {
			if err := forbid(unix.SYS_BPF, unix.BPF_MAP_CREATE, unix.EACCES); err != nil {
				return err
			}
			return tryLoad()
		}), "a security module", "SELinux")
	})
	t.Run("withheld", func(t *testing.T) {
		// As if SELinux or AppArmor did not let the capabilities count: capget does not show that.
		var text string
		if err := onThread(func() error {
			header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			var none [2]unix.CapUserData
			if err := unix.Capset(&header, &none[0]); err != nil {
				return err
			}
			text = forbidder(unix.EPERM)
			return nil
		}); err != nil || !strings.HasPrefix(text, "a security module withholds them") {
			t.Errorf("%q, %v", text, err)
		}
	})
	t.Run("memory", func(t *testing.T) {
		in, err := InCgroups()
		if err != nil {
			t.Fatal(err)
		}
		var before unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &before); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &before); err != nil {
				t.Error(err)
			}
		}()
		little := unix.Rlimit{Cur: 1 << 16, Max: before.Max}
		if !in { // this process has raised that, so it can do so again
			little.Max = little.Cur
		}
		if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &little); err != nil {
			t.Fatal(err)
		}
		refused := onThread(func() error {
			header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			var sets [2]unix.CapUserData
			if err := unix.Capget(&header, &sets[0]); err != nil {
				return err
			}
			sets[0].Effective &^= 1 << unix.CAP_SYS_RESOURCE
			if err := unix.Capset(&header, &sets[0]); err != nil {
				return err
			}
			return tryLoad()
		})
		if !in {
			wantRefused(t, refused, "before Linux 5.11", "locked memory", " bytes", "CAP_SYS_RESOURCE", "LimitMEMLOCK=infinity")
		} else if refused != nil {
			t.Errorf("memory counts for the control group, and not as locked: %v", refused)
		}
	})
}

// TestVerifierRefuses: nothing that somebody could allow.
func TestVerifierRefuses(t *testing.T) {
	testneeds.Root(t)
	_, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMem(asm.R0, asm.R1, 4096, asm.Word), asm.Return(),
	}})
	wantRefused(t, explainLoad(err), "the verifier of Linux "+kernelRelease(), "invalid")
}
