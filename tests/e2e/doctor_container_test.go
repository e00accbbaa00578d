package e2e

import (
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/dupip/dupip/tests/lab"
)

// In a container that was given too little of the host.
func TestDoctorInAContainer(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	pod := l.Pod(n, "pod", lab.PodOptions{Addrs: []netip.Addr{n.IPv4(5)}})

	part(t, l, "names do not propagate", func(l *lab.T) {
		// The shell stands for a container that was started before the pod.
		gate, opened, err := os.Pipe()
		l.Do(err)
		ready, isReady, err := os.Pipe()
		l.Do(err)
		for _, end := range []*os.File{gate, opened, ready, isReady} {
			l.Cleanup(func() { _ = end.Close() })
		}
		go func() {
			_, _ = io.ReadFull(ready, make([]byte, 1))
			_, err := n.AddPod("late", lab.PodOptions{Addrs: []netip.Addr{n.IPv4(6)}})
			if err != nil {
				l.Errorf("%v", err)
			}
			_, _ = opened.Write([]byte("\n"))
		}()
		r := doctor(l, n.Netns, func(cmd *exec.Cmd) {
			wrapped("unshare", "--mount", "--propagation", "private", "sh", "-c", `echo >&4; read -r _ <&3; exec "$@"`, "sh")(cmd)
			cmd.ExtraFiles = []*os.File{gate, isReady}
		}, quiet...)
		// Not by name: other tests on this machine may have made some, too.
		r.want(l, "netns names", "fail", "no namespace here, though on the host", "HostToContainer")
	})
	part(t, l, "a folder of its own", func(l *lab.T) {
		r := doctor(l, n.Netns, shell("unshare --mount", `mount -t tmpfs none /run/netns; touch /run/netns/one /run/netns/two`), quiet...)
		r.want(l, "netns names", "fail", "HostToContainer", "lead to no namespace")
	})
	part(t, l, "names only later", func(l *lab.T) {
		// The mounts of the start are there; only what comes later will be missing.
		r := doctor(l, n.Netns, shell("unshare --mount --propagation private", ""), quiet...)
		if r["netns names"].Status != "fail" { // another test made a name at this moment
			r.want(l, "netns names", "warn", "is private", "HostToContainer")
		}
		r = doctor(l, n.Netns, shell("unshare --mount --propagation slave", "mount --make-rshared /"), quiet...)
		r.want(l, "netns names", "ok")
	})
	part(t, l, "no processes of the host", func(l *lab.T) {
		r := doctor(l, n.Netns, shell("unshare --mount --pid --fork --mount-proc", ""), quiet...)
		r.want(l, "processes", "warn", "hostPID: true")
	})
	part(t, l, "neither processes nor names", func(l *lab.T) {
		r := doctor(l, n.Netns, shell("unshare --mount --pid --fork --mount-proc",
			`mount -t tmpfs none /run/netns; touch /run/netns/one`), quiet...)
		r.want(l, "processes", "warn", "hostPID: true")
		r.want(l, "netns names", "fail", "no namespaces: one", "HostToContainer")
		r.want(l, "pods", "fail", "no network namespace behind any", "processes")
	})
	part(t, l, "no proc", func(l *lab.T) {
		r := doctor(l, n.Netns, shell("unshare --mount", `mount -t tmpfs none /proc`), quiet...)
		r.want(l, "processes", "fail", "/proc")
	})
	part(t, l, "not the host's netns", func(l *lab.T) {
		// A pod's eth0 is the end of a veth as well, but its default route leaves by it.
		r := doctor(l, pod.Netns, nil, quiet...)
		r.want(l, "pods", "fail", "hostNetwork: true")
		r = doctor(l, pod.Netns, shell("unshare --mount --pid --fork --mount-proc", ""), quiet...)
		r.want(l, "pods", "fail", "hostNetwork: true")
	})
	part(t, l, "hostile names", func(l *lab.T) {
		r := doctor(l, n.Netns, shell("unshare --mount --pid --fork --mount-proc",
			`mount -t tmpfs none /run/netns; touch "/run/netns/$(printf 'a\033[2Jb')"`), quiet...)
		r.want(l, "netns names", "fail", "a?[2Jb")
	})
}

// part runs a subtest on the nodes of another test.
func part(t *testing.T, l *lab.T, name string, f func(*lab.T)) {
	t.Run(name, func(t *testing.T) { f(&lab.T{Lab: l.Lab, TB: t}) })
}

// shell runs the binary by a shell that does something first, itself run by a command.
func shell(by, first string) func(*exec.Cmd) {
	return wrapped(append(strings.Fields(by), "sh", "-e", "-c", first+"\n"+`exec "$@"`, "sh")...)
}
