package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/agent/books"
	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/metrics"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/agent/state"
)

// nearestDirectory returns dir, or the nearest directory above that exists, and an error if the agent
// could not make files there. access(2) also detects read-only mounts.
func nearestDirectory(dir string) (existing string, err error) {
	existing = filepath.Clean(dir)
	info, err := os.Stat(existing)
	for ; errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR); info, err = os.Stat(existing) {
		if _, err := os.Lstat(existing); err == nil {
			return existing, fmt.Errorf("%s is a dangling symbolic link", existing)
		}
		existing = filepath.Dir(existing)
	}
	var disk unix.Statfs_t
	switch {
	case err != nil:
		return existing, err
	case !info.IsDir():
		return existing, fmt.Errorf("%s is not a directory", existing)
	case unix.Statfs(existing, &disk) == nil && (disk.Type == unix.PROC_SUPER_MAGIC || disk.Type == unix.SYSFS_MAGIC):
		return existing, fmt.Errorf("%s belongs to the kernel, which allows no files there", existing)
	}
	switch err := unix.Faccessat(unix.AT_FDCWD, existing, unix.W_OK|unix.X_OK, unix.AT_EACCESS); {
	case errors.Is(err, unix.EROFS):
		return existing, fmt.Errorf("%s is mounted read-only", existing)
	case err != nil:
		return existing, fmt.Errorf("%s is not writable: %w", existing, err)
	}
	return existing, nil
}

// checkStateDir checks whether the agent can write its state, so that history survives a restart.
func checkStateDir(_ context.Context, known *facts) Check {
	const lost = "; until then conflicts and history are lost with a restart"
	dir := filepath.Clean(known.opts.StateDir)
	mount := "mount a hostPath volume at " + dir + " (type DirectoryOrCreate), or choose another --state-dir" + lost
	existing, err := nearestDirectory(dir)
	if errors.Is(err, fs.ErrPermission) {
		return known.failOrSkip("chown root and chmod 700 it on the node: root without CAP_DAC_OVERRIDE may not write to directories of other users"+lost, err)
	}
	var disk unix.Statfs_t
	var info unix.Stat_t
	if err == nil {
		err = errors.Join(unix.Statfs(existing, &disk), unix.Stat(existing, &info))
	}
	if err != nil {
		return fail(mount, "%v", err)
	}
	free := disk.Bavail * uint64(disk.Bsize) >> 20
	target, _ := filepath.EvalSymlinks(dir)
	switch {
	// Some file systems have no fixed number of inodes, and report 0.
	case disk.Bavail == 0, disk.Files > 0 && disk.Ffree == 0:
		return fail("free disk space there, or choose another --state-dir"+lost, "the disk of %s is full", existing)
	case free < 32: // room for the state of thousands of conflicts, and for the file that replaces it
		return warn("free disk space there, or choose another --state-dir", "only %d MiB are free at %s", free, existing)
	case disk.Type == unix.TMPFS_MAGIC, disk.Type == unix.RAMFS_MAGIC:
		return warn(mount, "%s is in memory and lost at reboot", dir)
	case disk.Type == unix.OVERLAYFS_SUPER_MAGIC && known.around.Contained:
		return warn(mount, "%s is part of the container and lost with it", dir)
	case existing != dir:
		return ok("%s can be made, %d MiB free", dir, free)
	case state.CheckOwner(&info) != nil:
		return fail("chown root and chmod 700 it, or choose another --state-dir"+lost, "other users own %s or may write to it (mode %04o, owner %d)", dir, info.Mode&0o777, info.Uid)
	case target != dir:
		return ok("%s is a symbolic link to %s, which is writable", dir, target)
	}
	return ok("%s is writable", dir)
}

const fileAdvice = "correct the file or the path, or mount the ConfigMap or Secret there; an agent does not start if the file is not a regular " +
	"file or not valid, and a running agent keeps the previous content active"

// checkConfig checks whether the configuration file is valid, so that an agent can start with it.
func checkConfig(_ context.Context, known *facts) Check {
	path := known.opts.Config
	if path == "" {
		return skip("no --config; the defaults are good")
	}
	if _, err := config.Load(path); err != nil {
		return known.failOrSkip("--config: "+fileAdvice, err)
	}
	return ok("%s is valid", path)
}

// checkSocket checks whether the agent can open its socket, so that the commands reach it.
func checkSocket(_ context.Context, known *facts) Check {
	path := known.opts.APISocket
	if known.status != nil {
		return ok("%s, served by the agent", path)
	}
	if _, err := nearestDirectory(filepath.Dir(path)); err != nil {
		return known.failOrSkip("choose another --api-socket, or mount a writable directory there", err)
	}
	switch stale, err := api.Inspect(path); {
	case errors.Is(err, api.ErrOccupied):
		return skip("%s is in use, see \"agent\"", path)
	case err != nil:
		return fail("choose another --api-socket", "%v", err)
	case stale:
		return ok("%s is a stale socket of an agent that was killed; the next agent replaces it", path)
	}
	return ok("%s can be made", path)
}

// checkMetrics checks whether the port is free or used by the agent, so that it can serve metrics.
func checkMetrics(_ context.Context, known *facts) Check {
	address := known.opts.MetricsListen
	if address == "off" {
		return skip("--metrics-listen %s", address)
	}
	listener, err := metrics.Listen(address)
	if err == nil {
		listener.Close()
	}
	_, port, _ := net.SplitHostPort(address)
	switch {
	case err == nil && known.status != nil:
		return warn("compare with the agent's own --metrics-listen; without metrics no alert is sent", "the agent runs, but nothing listens at %s", address)
	case err == nil:
		return ok("%s is free", address)
	case errors.Is(err, unix.EADDRINUSE) && servesMetrics(address):
		return ok("%s, served by the agent", address)
	}
	return fail(fmt.Sprintf("choose another --metrics-listen, or stop the program that uses the port: ss -lntp 'sport = :%s'", port), "%v", err)
}

// servesMetrics reports whether a dupip agent answers at the address. It ignores proxies of the
// environment.
func servesMetrics(address string) bool {
	client := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	host, port, _ := net.SplitHostPort(address) // a URL has an IPv4 address without brackets
	response, err := client.Get("http://" + net.JoinHostPort(host, port) + "/metrics")
	if err != nil {
		return false
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(response.Body, 4<<20))
	return bytes.Contains(body, []byte("dupip_build_info"))
}

// checkRuntime checks whether the container runtime answers, so that conflicts name pods. Names are optional.
func checkRuntime(ctx context.Context, known *facts) Check {
	socket := known.opts.CRISocket
	advice := "check that the runtime runs (systemctl status containerd crio)"
	cri, err := pods.CheckRuntime(ctx, socket)
	switch {
	case err != nil && cri.Disabled:
		return fail("give the path of a socket with --cri-socket, or none", "%v", err)
	case cri.Disabled:
		return skip("--cri-socket %s", socket)
	case err == nil:
		return ok("%s %s at %s", cri.Name, cri.Version, cri.Socket)
	case errors.Is(err, pods.ErrNoSocket) && known.around.Contained:
		advice = "give the path of the runtime's socket on the node with --cri-socket; a container needs hostPID and SYS_PTRACE to reach it"
	case errors.Is(err, pods.ErrNoSocket):
		advice = "give the path of the runtime's socket with --cri-socket"
	case known.uid != 0:
		return skip("needs root: %v", err)
	case status.Code(err) == codes.DeadlineExceeded:
		advice = "the runtime does not answer within 2s: it is busy or hangs (crictl info, and its log)"
	case status.Code(err) == codes.Unimplemented:
		advice = "enable the CRI plugin (disabled_plugins in /etc/containerd/config.toml), or upgrade to containerd 1.6, CRI-O 1.20 or newer"
	}
	return warn(advice+"; until then conflicts name network namespaces instead of pods", "%v", err)
}

// checkEngines checks whether the container engines that are there answer, so that conflicts name containers. Names are optional.
func checkEngines(ctx context.Context, known *facts) Check {
	socket := known.opts.EngineSocket
	engines, err := pods.CheckEngines(ctx, socket)
	switch {
	case err != nil:
		return fail("give the path of a socket with --engine-socket, or none", "%v", err)
	case socket == "off" || socket == "none":
		return skip("--engine-socket %s", socket)
	case len(engines) == 0 && socket != "":
		return warn("give the path of the engine's socket with --engine-socket, or leave it out", "no container engine at %s", socket)
	case len(engines) == 0:
		return ok("none at the usual places")
	}
	var texts []string
	for _, e := range engines {
		if e.Error != "" {
			return warn("check that the engine runs (docker ps, podman ps); until then conflicts have ids of containers instead of names", "%s: %s", e.Socket, e.Error)
		}
		texts = append(texts, fmt.Sprintf("%s %s at %s", e.Name, e.Version, e.Socket))
	}
	return ok("%s", strings.Join(texts, ", "))
}

// checkBooks checks whether libcni's cache can be read, so that networks do not depend on the names of devices in pods, and whether folders can
// be watched.
func checkBooks(_ context.Context, known *facts) Check {
	if known.opts.CRISocket == "off" || known.opts.CRISocket == "none" {
		return skip("--cri-socket %s", known.opts.CRISocket)
	}
	sandboxes, err := books.NewCache(books.CacheDir).List()
	unwatched := books.CheckWatch("/")
	switch {
	case known.uid == 0 && unwatched != nil:
		return warn("raise fs.inotify.max_user_instances or fs.inotify.max_user_watches (sysctl); until then an agent that starts reads all reservations of "+
			"the node's IPAM again and again", "%v", unwatched)
	case err == nil:
		return ok("libcni's cache has %d pods", len(sandboxes))
	case errors.Is(err, fs.ErrNotExist):
		return ok("no %s on this node; the container runtime may have the same", books.CacheDir)
	case known.uid != 0:
		return skip("needs root: %v", err)
	}
	return warn("let the container see the node's processes (hostPID: true) with CAP_SYS_PTRACE; until then the container runtime says which interface is "+
		"a pod's primary one, or its first name", "%v", err)
}
