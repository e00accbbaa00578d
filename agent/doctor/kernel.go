package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
)

func parseRelease(text string) (major, minor int) {
	if n, err := fmt.Sscanf(text, "%d.%d", &major, &minor); n != 2 || err != nil {
		return 0, 0
	}
	return major, minor
}

// checkKernel: the program needs bpf_ktime_get_coarse_ns (Linux 5.11), netns cookies
// (5.14), and is tested from 5.15 on.
func checkKernel(context.Context, *facts) finding {
	text, major, minor := release()
	switch {
	case major == 0:
		return warn("dupip needs Linux 5.15 or newer: compare with uname -r", "Linux %s", text)
	case major < 5 || major == 5 && minor < 15:
		return fail("install a kernel of version 5.15 or newer on this node", "Linux %s is too old", text)
	case runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64":
		return warn("dupip is tested on amd64 and arm64 only", "Linux %s on %s", text, runtime.GOARCH)
	}
	return ok("Linux %s, %s", text, runtime.GOARCH)
}

// checkSecurity never fails: it names the usual reasons for "operation not permitted" in
// the checks that follow.
func checkSecurity(context.Context, *facts) finding {
	var parts []string
	switch statusField("Seccomp") {
	case "0":
		parts = append(parts, "no seccomp filter")
	case "1", "2":
		parts = append(parts, "a seccomp filter")
	}
	if text, err := firstLine("/sys/kernel/security/lockdown"); err == nil {
		// "none [integrity] confidentiality": the present one is in brackets.
		if _, rest, found := strings.Cut(text, "["); found {
			text, _, _ = strings.Cut(rest, "]")
		}
		parts = append(parts, "lockdown "+text)
	}
	if text, err := firstLine("/proc/thread-self/attr/current"); err == nil && text != "" {
		parts = append(parts, "security label "+text)
	}
	if text, err := firstLine("/proc/sys/kernel/unprivileged_bpf_disabled"); err == nil {
		// 1 and 2 keep others out; an agent is privileged either way.
		parts = append(parts, map[bool]string{true: "bpf for everybody", false: "bpf for root only"}[text == "0"])
	}
	if len(parts) == 0 {
		return skip("/proc does not tell of seccomp and the like")
	}
	return ok("%s", strings.Join(parts, ", "))
}

func checkJIT(context.Context, *facts) finding {
	text, err := firstLine("/proc/sys/net/core/bpf_jit_enable")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return skip("only told in the machine's own network namespace")
	case err != nil:
		return skip("%v", err)
	case text == "0":
		return warn("each packet costs several times as much: run sysctl -w net.core.bpf_jit_enable=1, and keep it in /etc/sysctl.d",
			"the BPF compiler is off")
	}
	return ok("on")
}

// checkIPv6: without IPv6 at the host end no IPv6 address of a pod can be asked for.
func checkIPv6(context.Context, *facts) finding {
	if _, err := os.Stat("/proc/sys/net/ipv6"); err != nil {
		return ok("not in this kernel; IPv4 is observed")
	}
	if text, err := firstLine("/proc/sys/net/ipv6/conf/all/disable_ipv6"); err == nil && text == "1" {
		return ok("off on this node; IPv6 of pods is seen, but cannot be verified")
	}
	return ok("on")
}
