package doctor

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/metrics"
	"github.com/dupip/dupip/agent/pods"
)

// writable returns the folder, or the nearest one above that exists, and an error if the agent could not
// make files there. access(2) also detects read-only mounts.
func nearestDirectory(dir string) (there string, err error) {
	there = filepath.Clean(dir)
	info, err := os.Stat(there)
	for ; errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR); info, err = os.Stat(there) {
		if _, err := os.Lstat(there); err == nil {
			return there, fmt.Errorf("%s is a link to nothing", there)
		}
		there = filepath.Dir(there)
	}
	var system unix.Statfs_t
	switch {
	case err != nil:
		return there, err
	case !info.IsDir():
		return there, fmt.Errorf("%s is not a folder", there)
	case unix.Statfs(there, &system) == nil && (system.Type == unix.PROC_SUPER_MAGIC || system.Type == unix.SYSFS_MAGIC):
		return there, fmt.Errorf("%s belongs to the kernel, which allows no files there", there)
	}
	switch err := unix.Faccessat(unix.AT_FDCWD, there, unix.W_OK|unix.X_OK, unix.AT_EACCESS); {
	case errors.Is(err, unix.EROFS):
		return there, fmt.Errorf("%s is mounted read-only", there)
	case err != nil:
		return there, fmt.Errorf("%s cannot be written to: %w", there, err)
	}
	return there, nil
}

// checkStateDir checks whether conflicts and history would survive a restart.
func checkStateDir(_ context.Context, known *facts) Check {
	const lost = "; until then conflicts and history are lost with a restart"
	dir := filepath.Clean(known.opts.StateDir)
	mount := "mount a hostPath volume at " + dir + " (type DirectoryOrCreate), or choose another --state-dir" + lost
	there, err := nearestDirectory(dir)
	if errors.Is(err, fs.ErrPermission) {
		return known.problem("chown root and chmod 700 it on the node: root without CAP_DAC_OVERRIDE may not write to what is somebody else's"+lost, err)
	}
	var disk unix.Statfs_t
	var folder unix.Stat_t
	if err := cmp.Or(err, unix.Statfs(there, &disk), unix.Stat(there, &folder)); err != nil {
		return fail(mount, "%v", err)
	}
	free := disk.Bavail * uint64(disk.Bsize) >> 20
	target, _ := filepath.EvalSymlinks(dir)
	switch {
	// Some file systems have no fixed number of inodes, and report 0.
	case disk.Bavail == 0, disk.Files > 0 && disk.Ffree == 0:
		return fail("make room there, or choose another --state-dir"+lost, "the disk of %s is full", there)
	case free < 32: // for the state of thousands of conflicts, twice
		return warn("make room there, or choose another --state-dir", "only %d MiB are free at %s", free, there)
	case disk.Type == unix.TMPFS_MAGIC, disk.Type == unix.RAMFS_MAGIC:
		return warn(mount, "%s is in memory and lost at reboot", dir)
	case disk.Type == unix.OVERLAYFS_SUPER_MAGIC && known.namespaces.contained:
		return warn(mount, "%s is part of the container and lost with it", dir)
	case there != dir:
		return ok("%s can be made, %d MiB free", dir, free)
	case folder.Uid != 0 && folder.Uid != uint32(known.uid), folder.Mode&0o022 != 0:
		return warn("chown root and chmod 700 it, or choose another --state-dir", "others may write to %s (mode %04o, owner %d)", dir, folder.Mode&0o777, folder.Uid)
	case target != dir:
		return ok("%s leads to %s, writable", dir, target)
	}
	return ok("%s is writable", dir)
}

const fileAdvice = "correct it, or the path, or mount the ConfigMap or Secret there; an agent that starts refuses what is not a regular file or " +
	"not valid, one that runs keeps the previous content active"

// checkConfig checks whether the configuration file is valid.
func checkConfig(_ context.Context, known *facts) Check {
	path := known.opts.ConfigFile
	if path == "" {
		return skip("no --config; the defaults are good")
	}
	if _, err := config.Load(path); err != nil {
		return known.problem("--config: "+fileAdvice, err)
	}
	return ok("%s is valid", path)
}

// checkSocket checks whether an agent could open its socket.
func checkSocket(_ context.Context, known *facts) Check {
	path := known.opts.APISocket
	if known.status != nil {
		return ok("%s, served by the agent", path)
	}
	if _, err := nearestDirectory(filepath.Dir(path)); err != nil {
		return known.problem("choose another --api-socket, or mount a writable folder there", err)
	}
	switch left, err := api.Inspect(path); {
	case errors.Is(err, api.ErrOccupied):
		return skip("%s is in use, see \"agent\"", path)
	case err != nil:
		return fail("choose another --api-socket", "%v", err)
	case left:
		return ok("%s, left by an agent that was killed; the next one replaces it", path)
	}
	return ok("%s can be made", path)
}

// checkMetrics checks whether the port is free, or the agent's own.
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
		return warn("compare with the agent's own --metrics-listen; without metrics no alert is sent", "the agent runs, but nobody listens at %s", address)
	case err == nil:
		return ok("%s is free", address)
	case errors.Is(err, unix.EADDRINUSE) && servesMetrics(address):
		return ok("%s, served by the agent", address)
	}
	return fail(fmt.Sprintf("choose another --metrics-listen, or stop what has the port: ss -lntp 'sport = :%s'", port), "%v", err)
}

// servesMetrics reports whether a dupip agent answers at the address. It ignores proxies of the
// environment.
func servesMetrics(address string) bool {
	client := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get("http://" + address + "/metrics")
	if err != nil {
		return false
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(response.Body, 4<<20))
	return bytes.Contains(body, []byte("dupip_build_info"))
}

// checkRuntime checks whether an agent would have names for pods, which are optional.
func checkRuntime(ctx context.Context, known *facts) Check {
	advice, socket := "see whether the runtime runs (systemctl status containerd crio)", known.opts.CRISocket
	runtime, err := pods.CheckRuntime(ctx, socket)
	switch {
	case err != nil && runtime.Disabled:
		return fail("give the path of a socket with --cri-socket, or off", "%v", err)
	case runtime.Disabled:
		return skip("--cri-socket %s", socket)
	case err == nil:
		return ok("%s %s at %s", runtime.Runtime, runtime.Version, runtime.Socket)
	case errors.Is(err, pods.ErrNoSocket) && known.namespaces.contained:
		// The folder, because a runtime that restarts makes another socket.
		advice = "mount the folder with the runtime's socket (/run/containerd, /run/crio) into the container, at the same place or with --cri-socket"
	case errors.Is(err, pods.ErrNoSocket):
		advice = "name the runtime's with --cri-socket"
	case known.uid != 0:
		return skip("needs root: %v", err)
	case status.Code(err) == codes.DeadlineExceeded:
		advice = "it does not answer within 2s: the runtime is busy or hangs (crictl info, and its log)"
	case status.Code(err) == codes.Unimplemented:
		advice = "enable the CRI plugin (disabled_plugins in /etc/containerd/config.toml), or take containerd 1.6, CRI-O 1.20 or newer"
	}
	return warn(advice+"; until then conflicts name network namespaces instead of pods", "%v", err)
}
