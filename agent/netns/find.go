package netns

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Find finds namespaces by inode, with a name if they have one and a process if one is in them. Those that have neither are left out.
// It reads all processes of the node once, and none if no inode is asked for.
func Find(inodes map[uint64]bool) (map[uint64]Ref, error) {
	if len(inodes) == 0 {
		return nil, nil
	}
	return find(func(ino uint64) bool { return inodes[ino] })
}

// find finds at most maxCandidates namespaces. The path of a Ref is that of its first name. If it has none, the path is that of its
// first process, which may end.
func find(wanted func(inode uint64) bool) (map[uint64]Ref, error) {
	found := make(map[uint64]Ref)
	err := eachName(func(path, name string) {
		ino, err := Inode(path)
		if _, known := found[ino]; err != nil || !wanted(ino) || known {
			return
		}
		if len(found) < maxCandidates {
			found[ino] = Ref{Path: path, Inode: ino, Name: name}
		} else {
			tooManyCandidates.Exceeded(1)
		}
	})
	if err != nil {
		return nil, err
	}
	err = EachProcess(func(pid int, path string, ino uint64) {
		if !wanted(ino) {
			return
		}
		ref, ok := found[ino]
		switch {
		case !ok && len(found) >= maxCandidates:
			tooManyCandidates.Exceeded(1)
		case !ok:
			found[ino] = Ref{Path: path, Inode: ino, Pid: pid}
		case ref.Pid == 0 || pid < ref.Pid:
			ref.Pid = pid
			if ref.Name == "" {
				ref.Path = path
			}
			found[ino] = ref
		}
	})
	return found, err
}

// EachProcess calls f with the id of each process of the node that can be seen, the path of its netns and the inode of that.
func EachProcess(f func(pid int, path string, inode uint64)) error {
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return fmt.Errorf("listing processes: %w", err)
	}
	for _, process := range processes {
		pid, err := strconv.Atoi(process.Name())
		if err != nil {
			continue
		}
		path := "/proc/" + process.Name() + "/ns/net"
		var ino uint64
		link, err := os.Readlink(path) // takes half the time of a stat
		if err != nil {
			continue
		}
		if _, err := fmt.Sscanf(link, "net:[%d]", &ino); err == nil {
			f(pid, path, ino)
		}
	}
	return nil
}

const (
	// maxDescriptors limits one search of descriptors, to about a second.
	maxDescriptors = 1 << 19
	// maxHolders is how many descriptors of one namespace are kept. One is not enough: its process may close it in a moment.
	maxHolders = 4
)

// findDescriptors finds at most maxCandidates descriptors of processes that lead to namespaces, none of those known.
func findDescriptors(known map[uint64]bool) (refs []Ref) {
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	left, holders := maxDescriptors, make(map[uint64]int)
	for _, process := range processes {
		if pid, err := strconv.Atoi(process.Name()); err != nil || pid == os.Getpid() {
			continue
		}
		dir := "/proc/" + process.Name() + "/fd/"
		file, err := os.Open(dir)
		if err != nil {
			continue
		}
		descriptors, _ := file.Readdirnames(left)
		file.Close()
		if left -= len(descriptors); left <= 0 {
			break
		}
		for _, descriptor := range descriptors {
			ino, err := heldInode(process.Name(), descriptor)
			if err != nil || known[ino] || holders[ino] == maxHolders {
				continue
			}
			if len(refs) < maxCandidates {
				holders[ino]++
				refs = append(refs, Ref{Path: dir + descriptor, Inode: ino})
			} else {
				tooManyCandidates.Exceeded(1)
			}
		}
	}
	return refs
}

// heldInode returns the inode of the netns that a descriptor of a process leads to. It asks no file system but that of namespaces, because
// others may hang.
func heldInode(process, descriptor string) (ino uint64, err error) {
	path := "/proc/" + process + "/fd/" + descriptor
	link, err := os.Readlink(path)
	if err != nil {
		return 0, err
	}
	if _, err := fmt.Sscanf(link, "net:[%d]", &ino); err == nil {
		return ino, nil
	}
	// It was opened by a name, which is "/" when its mount is gone.
	if link != "/" && !slices.Contains(namedDirs, filepath.Dir(link)) {
		return 0, errNoNamespace
	}
	info, err := os.ReadFile("/proc/" + process + "/fdinfo/" + descriptor)
	if err != nil {
		return 0, err
	}
	const first = 0xF0000000                           // PROC_DYNAMIC_FIRST, fs/proc/generic.c: other file systems have lower inodes
	_, after, _ := strings.Cut(string(info), "\nino:") // since Linux 5.14
	if _, err := fmt.Sscan(after, &ino); err != nil || ino < first {
		return 0, errNoNamespace
	}
	return Inode(path)
}

// Surroundings are how a process sees the node.
type Surroundings struct {
	Contained bool // it is in a container, or has its own mounts
	HostPIDs  bool // /proc shows all processes of the node
	HostNetns bool
	HostRoot  string // of the node's files; empty if it is ours or cannot be read
}

// Surrounding returns how this process sees the node.
func Surrounding() (s Surroundings) {
	link := func(path string) string {
		target, _ := os.Readlink(path)
		return target
	}
	// A constant of the kernel (PROC_PID_INIT_INO, include/linux/proc_ns.h).
	machine := link("/proc/self/ns/pid") == "pid:[4026531836]"
	host := "/proc/1"
	if machine && link(host+"/ns/net") == "" {
		host = "/proc/2" // kthreadd, where a security module hides init
	}
	// If the node is a container (kind), process 1 is its init, whose mounts differ from a pod's.
	mounts := link(host + "/ns/mnt")
	other := mounts != "" && mounts != link("/proc/thread-self/ns/mnt")
	if other {
		s.HostRoot = host + "/root"
	}
	s.Contained, s.HostPIDs = !machine || other, machine || other
	// This file exists in the machine's own netns only (net_core_table, net/core/sysctl_net_core.c).
	_, err := os.Stat("/proc/sys/net/core/netdev_budget")
	s.HostNetns = err == nil || s.HostPIDs && mounts != "" && link(host+"/ns/net") == link(Self)
	return s
}

// SeesProcesses reports whether /proc shows all processes of the node. It does not in a container without hostPID.
func SeesProcesses() bool { return Surrounding().HostPIDs }
