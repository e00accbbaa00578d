package doctor

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/kernel"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/internal/testneeds"
)

// TestJudgeKernel: the probes decide, whatever the release says.
func TestJudgeKernel(t *testing.T) {
	cookie := errors.New("identifying a netns: making a sysfs: no such device")
	ring := fmt.Errorf("making a ring buffer of BPF, which Linux has since 5.8: %w", ebpf.ErrNotSupported)
	forbidden := fmt.Errorf("making a ring buffer of BPF, which Linux has since 5.8: %w", unix.EPERM)
	const root, nobody = 0, 65534
	for _, test := range []struct {
		release      string
		uid          int
		cookie, ring error
		status       Status
		words        []string
	}{
		{"6.18.44", root, nil, nil, OK, nil},
		{"5.14.0-427.13.1.el9_4.x86_64", root, nil, nil, OK, nil},
		{"5.14.21-150500.55.49-default", root, nil, nil, OK, nil},
		{"4.18.0-553.el8_10.x86_64", root, nil, nil, OK, nil}, // if both were brought to it
		{"rolling", root, nil, nil, OK, nil},
		{"5.10.0-30-amd64", root, nil, nil, OK, nil},
		{"5.4.0-150-generic", root, nil, ring, Fail, []string{"ring buffer", "5.8", "distribution"}},
		{"6.18.44", root, cookie, ring, Fail, []string{"making a sysfs", "ring buffer"}},
		{"7.2", root, nil, ring, Fail, []string{"ring buffer"}},
		{"5.14.0-427.13.1.el9_4.x86_64", nobody, nil, forbidden, Skip, []string{"needs root", "ring buffer"}},
		{"6.18.44", nobody, cookie, forbidden, Fail, []string{"making a sysfs"}},
		{"6.1.0-18-amd64", root, nil, forbidden, Skip, []string{"security", "ring buffer"}}, // by seccomp
	} {
		t.Run(fmt.Sprintf("%s %d", test.release, test.uid), func(t *testing.T) {
			got := judgeKernel(test.release, test.uid, test.cookie, test.ring)
			wantCheck(t, got, test.status, append(test.words, "Linux "+test.release)...)
		})
	}
}

// TestKernelHere: the kernel of this machine has all that is needed.
func TestKernelHere(t *testing.T) {
	testneeds.Root(t)
	wantCheck(t, checkKernel(t.Context(), new(facts)), OK, "Linux ", runtime.GOARCH)
}

// TestKernelWithoutCookies: the system call answers as before Linux 5.14, and nothing is missing.
func TestKernelWithoutCookies(t *testing.T) {
	testneeds.Root(t)
	checked := make(chan Check, 1)
	go func() {
		// The filter stays with the thread, which ends with this goroutine.
		runtime.LockOSThread()
		if err := withoutCookies(); err != nil {
			checked <- fail("", "%v", err)
			return
		}
		checked <- checkKernel(t.Context(), &facts{uid: os.Geteuid()})
	}()
	wantCheck(t, <-checked, OK, "Linux ")
}

// withoutCookies makes getsockopt fail for SO_NETNS_COOKIE in the calling thread.
func withoutCookies() error {
	const number, option = 0, 16 + 2*8 // in struct seccomp_data: nr, and args[2] of a little endian machine
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: number},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_GETSOCKOPT, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: option},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SO_NETNS_COOKIE, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOPROTOOPT)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	return errors.Join(unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
		unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0))
}

// TestFeatures: a kernel has a feature from the version on that brought it; before, the doctor says what is lost. The kernels that these
// tests run under have no features of later ones.
func TestFeatures(t *testing.T) {
	testneeds.Root(t)
	version, err := features.LinuxVersionCode()
	if err != nil {
		t.Fatal(err)
	}
	for _, feature := range kernel.Features {
		var major, minor uint32
		if _, err := fmt.Sscanf(feature.Since, "%d.%d", &major, &minor); err != nil {
			t.Fatal(err)
		}
		lacks, err := feature.Lacks()
		if err != nil || lacks != (version < major<<16|minor<<8) {
			t.Errorf("this kernel lacks %s: %t, %v", feature.Name, lacks, err)
		}
		words := []string{"as since Linux " + feature.Since}
		if lacks {
			words = []string{"no " + feature.Name, "Linux has since " + feature.Since + ": ", feature.Cost}
		}
		wantCheck(t, featureCheck(feature)(t.Context(), new(facts)), OK, words...)
	}
	if has, err := bpf.HasTCX(); err != nil || has == (attachCheck(bpf.TCX)(t.Context(), new(facts)).Status != OK) {
		t.Errorf("tcx is there: %t (%v), and the test of it finds the contrary", has, err)
	}
}
