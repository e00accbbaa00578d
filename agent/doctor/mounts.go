package doctor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/netns"
)

// checkProcesses: a netns without a name is found through its processes.
func checkProcesses(_ context.Context, known *facts) finding {
	total, hidden, others, err := processNetns()
	if err != nil {
		return fail("mount /proc into the container (it is there unless it was masked)", "/proc cannot be read: %v", err)
	}
	if !known.place.hostProcesses() && others == 0 {
		return warn("set hostPID: true in the pod: without it a network namespace is only found when it has a name under /run/netns",
			"/proc shows only this container's processes")
	}
	switch {
	case hidden > 0 && known.uid != 0:
		return skip("of %s %d need root to be looked at", plural(total, "process"), hidden)
	case hidden > 0 && hidden < total && !known.has(unix.CAP_SYS_PTRACE):
		return warn("add SYS_PTRACE to the container's capabilities: without it a network namespace is only found when it has a name under /run/netns",
			"of %s %d hide their network namespace", plural(total, "process"), hidden)
	case hidden > 0 && hidden == total:
		return fail("add SYS_PTRACE to the container's capabilities, and remount /proc if it has hidepid (grep hidepid /proc/mounts)",
			"no process lets its network namespace be seen")
	}
	return ok("%s of the node, in %s", plural(total, "process"), plural(others+1, "network namespace"))
}

// processNetns counts the processes of /proc, those whose netns may not be seen, and the
// namespaces other than ours.
func processNetns() (total, hidden, others int, err error) {
	own, err := os.Readlink(netns.Self)
	if err != nil {
		return 0, 0, 0, err
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, 0, 0, err
	}
	seen := make(map[string]bool)
	for _, entry := range entries {
		if _, err := strconv.Atoi(entry.Name()); err != nil {
			continue
		}
		link, err := os.Readlink("/proc/" + entry.Name() + "/ns/net")
		switch {
		case errors.Is(err, fs.ErrPermission):
			hidden++
		case err != nil:
			continue // it has ended
		case link != own:
			seen[link] = true
		}
		total++
	}
	return total, hidden, len(seen), nil
}

// propagationAdvice is the remedy for names that do not arrive in a container.
const propagationAdvice = "mount the host's /run/netns at the same place with mountPropagation: HostToContainer, and restart the pod"

// checkNames compares what is under /run/netns with what the host has there. Mounts made
// on the host after a container's start reach it only by mount propagation; without it
// their names are plain empty files in here.
func checkNames(_ context.Context, known *facts) finding {
	own, err := netns.ListNamed("")
	if err != nil {
		return fail("look at the mount of that folder", "%v", err)
	}
	var names, plain []string
	for _, dir := range own {
		names = append(names, dir.Namespaces...)
		plain = append(plain, dir.Plain...)
	}
	if !known.place.contained() {
		if len(plain) > 0 {
			return ok("%s; %s", plural(len(names), "name"), leftOver(plain))
		}
		return ok("%s under /run/netns", plural(len(names), "name"))
	}
	lost, seen := lostNames(known)
	if len(lost) > 0 {
		return fail(propagationAdvice, "%s lead to no namespace here, though on the host: %s",
			plural(len(lost), "name"), some(lost))
	}
	switch {
	case own[0].Missing && len(names) == 0 && !seen:
		return warn(propagationAdvice, "/run/netns is not mounted into this container")
	case len(plain) > 0 && len(names) == 0 && !seen:
		return fail(propagationAdvice, "the files under /run/netns are no namespaces: %s", some(plain))
	case len(plain) > 0 && !seen:
		return warn(propagationAdvice+"; if they are left over on the host as well, remove them there",
			"some files under /run/netns are no namespaces: %s", some(plain))
	}
	if text, private := privateMount("/run/netns"); private && !own[0].Missing {
		return warn(propagationAdvice, "%s: names that come later will not be seen", text)
	}
	if len(plain) > 0 {
		return ok("%s; %s", plural(len(names), "name"), leftOver(plain))
	}
	return ok("%s under /run/netns, as on the host", plural(len(names), "name"))
}

func leftOver(plain []string) string {
	return fmt.Sprintf("%s there only left over: %s", plural(len(plain), "file"), some(plain))
}

// lostNames are those that lead to a namespace on the host and to none here. seen says
// whether the host could be looked at.
func lostNames(known *facts) (lost []string, seen bool) {
	if known.place.host == "" || known.place.sameMounts {
		return nil, false
	}
	root := known.place.host + "/root"
	host, err := netns.ListNamed(root)
	// Of a process without the folder nothing can be told: its root may not be the node's.
	if err != nil || host[0].Missing {
		return nil, false
	}
	for _, dir := range host {
		here := strings.TrimPrefix(dir.Dir, root)
		for _, name := range dir.Namespaces {
			// The host's once more and last: it may have come or gone meanwhile.
			if !netns.IsNamespace(filepath.Join(here, name)) && netns.IsNamespace(filepath.Join(dir.Dir, name)) {
				lost = append(lost, name)
			}
		}
	}
	slices.Sort(lost)
	return lost, true
}

// privateMount says whether the mount that a folder is on gets none of the host's later
// mounts, and which one it is.
func privateMount(dir string) (text string, private bool) {
	if resolved, err := filepath.EvalSymlinks(dir); err == nil {
		dir = resolved
	}
	file, err := os.Open("/proc/thread-self/mountinfo")
	if err != nil {
		return "", false
	}
	defer file.Close()
	point, propagated := mountOf(file, dir)
	return fmt.Sprintf("the mount at %s is private", point), point != "" && !propagated
}

// mountOf finds in a mountinfo file (proc_pid_mountinfo(5)) the mount that a folder is on,
// and whether mounts propagate into it.
func mountOf(mountinfo io.Reader, dir string) (point string, propagated bool) {
	lines := bufio.NewScanner(mountinfo)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		// id parent device root point options [optional fields] - …
		fields := strings.Fields(lines.Text())
		if len(fields) < 7 {
			continue
		}
		at := fields[4]
		if dir != at && !strings.HasPrefix(dir, strings.TrimSuffix(at, "/")+"/") || len(at) < len(point) {
			continue
		}
		// Of two on one point the later covers the earlier.
		point, propagated = at, false
		for _, optional := range fields[6:] {
			if optional == "-" {
				break
			}
			propagated = propagated || strings.HasPrefix(optional, "shared:") || strings.HasPrefix(optional, "master:")
		}
	}
	return point, propagated
}
