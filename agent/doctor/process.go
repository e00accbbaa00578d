package doctor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/agent/probe"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/document"
)

// facts are shared by several checks and do not change.
type facts struct {
	opts      Options
	uid       int
	around    netns.Surroundings
	rights    error            // why an agent could not load programs, enter netns and send
	mode      bpf.Mode         // in which an agent would attach, empty if it could not
	status    *document.Status // of the running agent, nil with statusErr
	statusErr error
	nodes     document.Nodes // members of the cluster
}

func gather(ctx context.Context, opts Options) *facts {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	f := &facts{opts: opts, uid: os.Geteuid(), around: netns.Surrounding()}
	sender, err := probe.OpenSocket()
	if err == nil {
		sender.Close()
	}
	f.rights = errors.Join(bpf.CheckCapabilities(), netns.CanEnter(), err)
	f.mode, _ = bpf.ResolveMode(opts.Attach) // the check of the mode has the error
	client := api.NewClient(opts.APISocket)
	if status, err := client.Status(ctx, document.Query{}); err != nil {
		f.statusErr = err
	} else if f.status = &status; !status.Cluster.Alone {
		f.nodes, _ = client.Nodes(ctx, document.Query{}) // only to name those that do not answer
	}
	return f
}

// failOrSkip returns a failure, or a skipped check if only root has the permission.
func (f *facts) failOrSkip(advice string, err error) Check {
	if f.uid != 0 && errors.Is(err, fs.ErrPermission) {
		return skip("needs root: %v", err)
	}
	return fail(advice, "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
}

const rightsAdvice = "add what is named to the container's securityContext.capabilities, or run it privileged: without SYS_ADMIN no network namespace is " +
	"entered, without NET_ADMIN nothing attached, without NET_RAW no address probed, without NET_BROADCAST new addresses go unnoticed; " +
	"if it is there, something else forbids it: see \"security\", and allow it in the seccomp, AppArmor or SELinux profile"

const ptraceAdvice = "add SYS_PTRACE to the container's capabilities: without it a network namespace is only found when it has a name under /run/netns"

func checkCapabilities(_ context.Context, known *facts) Check {
	// Every user namespace except the machine's own maps ids.
	uids, err := os.ReadFile("/proc/self/uid_map")
	switch {
	case known.uid != 0:
		return fail("run as root: with sudo, or in a pod with runAsUser: 0", "this is user %d; the agent needs root", known.uid)
	case err == nil && strings.Join(strings.Fields(string(uids)), " ") != "0 0 4294967295":
		return fail("capabilities count for nothing there: set hostUsers: true in the pod, or leave the rootless container", "this is a user namespace of its own")
	}
	if err := errors.Join(known.rights, links.CanWatch()); err != nil {
		return known.failOrSkip(rightsAdvice, err)
	}
	if !canTrace() {
		return warn(ptraceAdvice, "CAP_SYS_PTRACE missing")
	}
	return ok("all there")
}

func canTrace() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&header, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_SYS_PTRACE) != 0
}

// checkSecurity never fails. It lists the usual causes of "operation not permitted" in later checks.
func checkSecurity(context.Context, *facts) Check {
	parts := []string{"no seccomp filter"}
	if mode, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0); err != nil || mode != 0 {
		parts[0] = "a seccomp filter"
	}
	for _, file := range []struct{ what, path string }{
		{"lockdown", "/sys/kernel/security/lockdown"}, // the mode is in brackets
		{"security label", "/proc/thread-self/attr/current"},
		{"unprivileged_bpf_disabled", "/proc/sys/kernel/unprivileged_bpf_disabled"},
	} {
		if text := firstLine(file.path); text != "" {
			parts = append(parts, file.what+" "+text)
		}
	}
	return ok("%s", strings.Join(parts, ", "))
}

// setting returns a check of a sysctl: on, except for the values in otherwise.
func setting(path string, otherwise map[string]Check) func(context.Context, *facts) Check {
	return func(context.Context, *facts) Check {
		if f, found := otherwise[firstLine(path)]; found {
			return f
		}
		return ok("on")
	}
}

// firstLine reads a file of /proc or /sys that holds one value, empty if it cannot be read.
func firstLine(path string) string {
	data, _ := os.ReadFile(path)
	line, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimSpace(strings.TrimRight(line, "\x00"))
}
