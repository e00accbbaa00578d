package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/dupip/dupip/tests/cri"
	"github.com/dupip/dupip/tests/lab"
)

// listenMute accepts connections at a Unix socket and sends nothing.
func listenMute(l *lab.T, path string) {
	l.Helper()
	listener, err := net.Listen("unix", path)
	l.Do(err)
	l.Cleanup(func() { _ = listener.Close() })
	go func() {
		var kept []net.Conn // an unreferenced one would be closed by the garbage collector
		for {
			conn, err := listener.Accept()
			if err != nil {
				for _, conn := range kept {
					_ = conn.Close()
				}
				return
			}
			kept = append(kept, conn)
		}
	}()
}

// What keeps an agent from its sockets and ports.
func TestDoctorSockets(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	dir := t.TempDir()
	examine := func(socket string) diagnosis {
		return doctor(l, n.Netns, nil, append([]string{"--api-socket", socket}, quiet...)...)
	}

	stale := filepath.Join(dir, "stale.sock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	l.Do(err)
	listener.SetUnlinkOnClose(false)
	l.Do(listener.Close())
	r := examine(stale)
	r.want(l, "agent", "warn", "none runs")
	r.want(l, "api socket", "ok", "killed", "replaces")

	file := filepath.Join(dir, "file")
	l.Do(os.WriteFile(file, nil, 0o600))
	examine(file).want(l, "api socket", "fail", "no socket", "--api-socket")
	examine(filepath.Join(file, "a.sock")).want(l, "api socket", "fail", "not a directory")
	examine("/proc/none/a.sock").want(l, "api socket", "fail", "/proc")
	examine(filepath.Join(dir, strings.Repeat("x", 120))).want(l, "api socket", "fail", "107")

	hanging := filepath.Join(dir, "hanging.sock")
	listenMute(l, hanging)
	began := time.Now()
	examine(stale)
	usual := time.Since(began) // longer on a busy machine
	began = time.Now()
	r = examine(hanging)
	r.want(l, "agent", "fail", "does not answer", "restart")
	if longer := time.Since(began) - usual; longer > 9*time.Second {
		t.Errorf("an agent that hangs held the doctor up for %v", longer)
	}

	a := l.Agent(n)
	r = examine(filepath.Join(dir, "other.sock"))
	r.want(l, "agent", "fail", "an agent runs on this node", "--api-socket")
	examine(a.Socket).want(l, "agent", "ok", "ready")
	r = doctor(l, n.Netns, nil, "--api-socket", a.Socket, "--cri-socket", "off", "--metrics-listen", ":1")
	r.want(l, "metrics", "warn", "the agent runs, but nothing listens")
	l.Do(a.Stop())
}

// What is in the way of the metrics.
func TestDoctorMetricsPort(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	serve := func(body string) net.Listener {
		var listener net.Listener
		l.Do(n.Exec(func() (err error) { listener, err = net.Listen("tcp", "127.0.0.1:0"); return err }))
		t.Cleanup(func() { _ = listener.Close() })
		go func() {
			_ = http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, body)
			}))
		}()
		return listener
	}
	listener := serve("node_exporter_build_info 1\n")
	taken := listener.Addr().(*net.TCPAddr).Port
	examine := func(address string) diagnosis {
		return doctor(l, n.Netns, nil, "--cri-socket", "off", "--metrics-listen", address)
	}
	for _, host := range []string{"", "127.0.0.1", "0.0.0.0", "[::]"} {
		address := fmt.Sprintf("%s:%d", host, taken)
		examine(address).want(l, "metrics", "fail", address, "in use", fmt.Sprintf("sport = :%d", taken))
	}
	served := serve("dupip_build_info 1\n").Addr().(*net.TCPAddr).Port
	// In brackets as the chart has the node's address, which may be an IPv6 one.
	for _, host := range []string{"127.0.0.1", "[127.0.0.1]"} {
		examine(fmt.Sprintf("%s:%d", host, served)).want(l, "metrics", "ok", "served by the agent")
	}
	l.Do(listener.Close())
	examine(fmt.Sprintf(":%d", taken)).want(l, "metrics", "ok", "free")
	examine("[::1]:9951").want(l, "metrics", "ok", "free")
	examine("none").want(l, "metrics", "fail", "--metrics-listen") // the agent refuses it
	examine("192.0.2.1:9951").want(l, "metrics", "fail", "does not have the address")
	examine("9951").want(l, "metrics", "fail", "host:port")
}

// The state folder: a restart must find what was kept.
func TestDoctorStateDir(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	disk := onDisk(t)
	examine := func(dir string) diagnosis {
		return doctor(l, n.Netns, nil, append([]string{"--state-dir", dir}, quiet...)...)
	}
	mount := func(name string, flags uintptr, options string) string {
		dir := filepath.Join(disk, name)
		l.Do(os.Mkdir(dir, 0o700), unix.Mount("none", dir, "tmpfs", flags, options))
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
		return dir
	}
	examine(disk).want(l, "state dir", "ok", "writable")
	examine(filepath.Join(disk, "not", "yet")).want(l, "state dir", "ok", "can be made")
	if _, err := os.Stat(filepath.Join(disk, "not")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the doctor made the folder: %v", err)
	}

	examine(mount("read-only", unix.MS_RDONLY, "")).want(l, "state dir", "fail", "read-only")
	examine(mount("memory", 0, "mode=700,size=64m")).want(l, "state dir", "warn", "lost at reboot")
	examine(mount("small", 0, "mode=700,size=1m")).want(l, "state dir", "warn", "MiB")
	full := mount("full", 0, "mode=700,size=64k")
	if err := os.WriteFile(filepath.Join(full, "filler"), make([]byte, 1<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("filling the disk: %v", err)
	}
	examine(full).want(l, "state dir", "fail", "full", "free disk space")

	file, dangling, leading := filepath.Join(disk, "file"), filepath.Join(disk, "dangling"), filepath.Join(disk, "leading")
	open := filepath.Join(disk, "open")
	l.Do(os.WriteFile(file, nil, 0o600), os.Symlink("/nowhere/at/all", dangling), os.Mkdir(open, 0o700),
		os.Chmod(open, 0o777), os.Symlink(disk, leading))
	examine(file).want(l, "state dir", "fail", "not a directory")
	examine(filepath.Join(file, "below")).want(l, "state dir", "fail", "not a directory")
	examine(dangling).want(l, "state dir", "fail", "dangling symbolic link")
	examine(leading).want(l, "state dir", "ok", "symbolic link to "+disk)
	examine(open).want(l, "state dir", "fail", "may write to it")
}

// The configuration file, as far as it can be checked without reading it.
func TestDoctorConfig(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	l.Do(unix.Mkfifo(fifo, 0o600))
	examine := func(path string) diagnosis {
		return doctor(l, n.Netns, nil, append([]string{"--config", path}, quiet...)...)
	}
	examine(filepath.Join(dir, "none.yaml")).want(l, "config", "fail", "none.yaml", "--config")
	examine(dir).want(l, "config", "fail", "not a regular file")
	examine(fifo).want(l, "config", "fail", "not a regular file")
}

// The doctor connects to whatever is at the runtime's socket.
func TestDoctorRuntime(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	dir := t.TempDir()
	examine := func(path string) diagnosis {
		return doctor(l, n.Netns, nil, "--metrics-listen", "off", "--cri-socket", path)
	}
	none := filepath.Join(dir, "none.sock")
	examine(none).want(l, "runtime", "warn", none, "--cri-socket", "network namespaces instead of pods")

	hanging := filepath.Join(dir, "hanging.sock")
	listenMute(l, hanging)
	began := time.Now()
	examine(none)
	usual := time.Since(began) // longer on a busy machine
	began = time.Now()
	examine(hanging).want(l, "runtime", "warn", "does not answer within 2s")
	if longer := time.Since(began) - usual; longer > patience {
		t.Errorf("a runtime that hangs held the doctor up for %v", longer)
	}

	// One that answers, and in another language.
	listener, err := net.Listen("unix", filepath.Join(dir, "other.sock"))
	l.Do(err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("220 \x1b[2J mail\r\n"))
			_ = conn.Close()
		}
	}()
	examine(listener.Addr().String()).want(l, "runtime", "warn", "other.sock")

	containerd := startContainerd(l)
	examine(containerd).want(l, "runtime", "ok", "containerd", containerd)
	examine("unix://"+containerd).want(l, "runtime", "ok", "containerd")
}

// startContainerd runs a containerd that runs no containers, and returns its socket.
func startContainerd(l *lab.T) string {
	l.Helper()
	path, err := exec.LookPath("containerd")
	l.Do(err)
	// Not t.TempDir: paths of sockets have to be short.
	dir, err := os.MkdirTemp("", "doctor")
	l.Do(err)
	l.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket, config := filepath.Join(dir, "c.sock"), filepath.Join(dir, "config.toml")
	l.Do(os.WriteFile(config, fmt.Appendf(nil, `version = 2
root = %q
state = %q
[grpc]
address = %q
[plugins."io.containerd.internal.v1.opt"]
path = %q
[plugins."io.containerd.grpc.v1.cri".cni]
conf_dir = %q
bin_dir = %q
`, filepath.Join(dir, "root"), filepath.Join(dir, "state"), socket,
		filepath.Join(dir, "opt"), filepath.Join(dir, "conf"), filepath.Join(dir, "bin")), 0o600))
	cmd := exec.Command(path, "--config", config, "--log-level", "error")
	var log strings.Builder
	cmd.Stderr = &log
	l.Do(cmd.Start())
	l.Cleanup(func() {
		_ = cmd.Process.Signal(unix.SIGTERM)
		_ = cmd.Wait()
		if l.Failed() {
			l.Logf("containerd: %s", log.String())
		}
	})
	conn, err := cri.Dial(socket)
	l.Do(err)
	defer conn.Close()
	// It listens before its CRI is ready.
	l.Eventually("containerd answers", func() error {
		_, err := runtimeapi.NewRuntimeServiceClient(conn).Version(within(l, patience), &runtimeapi.VersionRequest{})
		return err
	})
	return socket
}

// The doctor translates a running agent's status.
func TestDoctorReadsTheStatus(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	pod := l.Pod(n, "victim", lab.PodOptions{Addrs: []netip.Addr{n.IPv4(5)}})
	a := l.Agent(n)
	examine := func() diagnosis {
		return doctor(l, n.Netns, nil, append([]string{"--api-socket", a.Socket}, quiet...)...)
	}
	r := examine()
	r.want(l, "interfaces", "ok", "1 interface observed")
	r.want(l, "drops", "ok", "none")

	// A pod that sprays sources.
	var sources []netip.Addr
	for i := range 2000 {
		sources = append(sources, netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}))
	}
	l.Do(pod.Spoof(sources...))
	l.Eventually("the agent counts refusals", func() error {
		s, err := statusOf(l, a)
		if err == nil && s.Dropped["packets over the limits"] == 0 {
			err = errors.New("none")
		}
		return err
	})
	r = examine()
	r.want(l, "drops", "warn", "packets over the limits", pod.HostInterface, "victim")

	// An XDP program in front of ours.
	index, err := n.Ifindex(pod.HostInterface)
	l.Do(err)
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, License: "Dual BSD/GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
	})
	l.Do(err)
	t.Cleanup(func() { _ = program.Close() })
	var attached link.Link
	l.Do(n.Exec(func() (err error) {
		attached, err = link.AttachXDP(link.XDPOptions{Program: program, Interface: index, Flags: link.XDPGenericMode})
		return err
	}))
	t.Cleanup(func() { _ = attached.Close() })
	l.Do(a.Stop())
	a = l.Agent(n)
	r = examine()
	r.want(l, "interfaces", "warn", "shadowed: "+pod.HostInterface, "bpftool")
	l.Do(attached.Close(), a.Stop())

	// A place that is taken.
	a = l.Agent(n, "--attach", "xdp")
	l.Eventually("attached", func() error {
		i, err := interfaceOf(l, a, pod.HostInterface)
		if err == nil && i.State != "attached" {
			err = fmt.Errorf("state %s", i.State)
		}
		return err
	})
	l.Do(a.Stop(), n.Exec(func() (err error) {
		attached, err = link.AttachXDP(link.XDPOptions{Program: program, Interface: index, Flags: link.XDPGenericMode})
		return err
	}))
	a = l.Agent(n, "--attach", "xdp")
	r = examine()
	r.want(l, "interfaces", "fail", "failed: "+pod.HostInterface, "in use")
}
