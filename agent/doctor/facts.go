package doctor

import (
	"bufio"
	"context"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/bpf"
)

// facts are what more than one check needs to know. They are gathered first, and not
// changed afterwards.
type facts struct {
	opts Options
	uid  int
	// caps are the effective capabilities, by number; capsErr is why they are not known.
	caps    uint64
	capsErr error
	// userns: this process is root of a user namespace only.
	userns bool
	place  place
	// mode is how an agent would attach; modeErr is why it would not.
	mode    bpf.Mode
	modeErr error
	// status is what the agent answers, nil if none does; statusErr is why.
	status    *api.Status
	statusErr error
	// nodes are what it answers of the cluster, nil where it is alone.
	nodes *api.Nodes
}

func gather(ctx context.Context, opts Options) *facts {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	known := &facts{opts: opts, uid: os.Geteuid(), userns: inUserns(), place: locate()}
	known.caps, known.capsErr = effective()
	known.mode, known.modeErr = bpf.ResolveMode(opts.Attach)
	client := api.NewClient(opts.APISocket)
	status, err := client.Status(ctx)
	if err != nil {
		known.statusErr = err
		return known
	}
	known.status = &status
	if !status.Cluster.Alone {
		if nodes, err := client.Nodes(ctx); err == nil {
			known.nodes = &nodes
		}
	}
	return known
}

func (f *facts) has(capability int) bool { return f.caps&(1<<capability) != 0 }

// effective reads the effective capabilities of the calling thread.
func effective() (uint64, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return 0, err
	}
	return uint64(data[1].Effective)<<32 | uint64(data[0].Effective), nil
}

// inUserns says whether ids are mapped, as they are in every user namespace but the first.
func inUserns() bool {
	data, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && strings.Join(strings.Fields(string(data)), " ") != "0 0 4294967295"
}

// place is where this process stands among the node's namespaces.
type place struct {
	// firstPIDs: /proc shows every process of the machine.
	firstPIDs bool
	// host is a process that has the node's namespaces, empty if none may be looked at.
	host string
	// sameMounts and sameNetns say that we have the namespaces of that process.
	sameMounts, sameNetns bool
	// firstNetns: our netns is the machine's own.
	firstNetns bool
}

// initialPIDs is the inode of the machine's own PID namespace, a constant of the kernel
// (PROC_PID_INIT_INO, include/linux/proc_ns.h).
const initialPIDs = "pid:[4026531836]"

func locate() place {
	var p place
	pids, _ := os.Readlink("/proc/self/ns/pid")
	p.firstPIDs = pids == initialPIDs
	for _, pid := range hostPIDs(p.firstPIDs) {
		mounts, mountsErr := os.Readlink(pid + "/ns/mnt")
		netns, netnsErr := os.Readlink(pid + "/ns/net")
		if mountsErr != nil || netnsErr != nil {
			continue
		}
		own, _ := os.Readlink("/proc/thread-self/ns/mnt")
		p.sameMounts = own == mounts
		own, _ = os.Readlink("/proc/thread-self/ns/net")
		p.sameNetns = own == netns
		p.host = pid
		break
	}
	// It exists once per machine, not per netns (net_core_table, net/core/sysctl_net_core.c).
	_, err := os.Stat("/proc/sys/net/core/netdev_budget")
	p.firstNetns = err == nil
	return p
}

// hostPIDs are processes with the node's namespaces: init, and where the machine's
// processes are seen, kthreadd, should a security module hide init even from root.
func hostPIDs(firstPIDs bool) []string {
	if firstPIDs {
		return []string{"/proc/1", "/proc/2"}
	}
	return []string{"/proc/1"}
}

// hostProcesses says whether /proc shows the processes of a node rather than those of
// our own container. A node may be a container itself (kind): then pid 1 is its init,
// and has other mounts than we have.
func (p place) hostProcesses() bool { return p.firstPIDs || p.host != "" && !p.sameMounts }

// contained says whether we are in a container, or in mounts of our own.
func (p place) contained() bool { return !p.firstPIDs || p.host != "" && !p.sameMounts }

// hostNetns says whether we are in the netns of a node.
func (p place) hostNetns() bool {
	return p.firstNetns || p.hostProcesses() && p.host != "" && p.sameNetns
}

// release is the kernel's release as uname -r prints it, and its first two numbers, 0 if unknown.
func release() (text string, major, minor int) {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return "of unknown version", 0, 0
	}
	text = unix.ByteSliceToString(name.Release[:])
	major, minor = parseRelease(text)
	return text, major, minor
}

// statusField reads a field of /proc/thread-self/status, empty if it is not there.
func statusField(name string) string {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	file, err := os.Open("/proc/thread-self/status")
	if err != nil {
		return ""
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if key, value, found := strings.Cut(lines.Text(), ":"); found && key == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// firstLine reads a file of /proc or /sys that holds one value.
func firstLine(path string) (string, error) {
	data, err := os.ReadFile(path)
	line, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimSpace(strings.TrimRight(line, "\x00")), err
}
