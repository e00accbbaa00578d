package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document/say"
)

// checkProcesses checks whether an agent can find a netns without a name by its processes.
func checkProcesses(_ context.Context, known *facts) Check {
	own, err := os.Readlink(netns.Self)
	if err != nil {
		return fail("mount /proc into the container (it is there unless it was masked)", "/proc cannot be read: %v", err)
	}
	total, hidden, others := 0, 0, make(map[string]bool)
	processes, _ := filepath.Glob("/proc/[0-9]*") // fails for bad patterns only
	for _, process := range processes {
		link, err := os.Readlink(process + "/ns/net")
		switch {
		case errors.Is(err, fs.ErrPermission):
			hidden++
		case err != nil:
			continue // it has ended
		case link != own:
			others[link] = true
		}
		total++
	}
	switch {
	case !known.around.HostPIDs && len(others) == 0:
		return warn("set hostPID: true in the pod: without it a network namespace is only found when it has a name under /run/netns", "/proc shows only this container's processes")
	case hidden > 0 && known.uid != 0:
		return skip("of %d processes only root can read %d", total, hidden)
	case hidden > 0 && hidden == total:
		return fail("add SYS_PTRACE to the container's capabilities, and remount /proc if it has hidepid (grep hidepid /proc/mounts)", "no process lets its network namespace be seen")
	case hidden > 0 && !canTrace():
		return warn(ptraceAdvice, "of %d processes %d hide their network namespace", total, hidden)
	}
	return ok("%d processes of the node, in %s", total, say.Plural(len(others)+1, "network namespace", "network namespaces"))
}

const namesAdvice = "mount the host's /run/netns at the same place with mountPropagation: HostToContainer, and restart the pod"

// checkNames compares the container's /run/netns with the host's. Without mount propagation the
// container has plain empty files instead of later mounts.
func checkNames(_ context.Context, known *facts) Check {
	own, err := netns.ListNamed("")
	if err != nil {
		return known.failOrSkip("check the mount of that directory", err)
	}
	var names, plain []string
	for _, dir := range own {
		names = append(names, dir.Namespaces...)
		plain = append(plain, dir.Plain...)
	}
	lost, compared := lostNames(known)
	mounts, _ := os.ReadFile("/proc/thread-self/mountinfo")
	point, private := mountOf(string(mounts), own[0].Dir)
	switch {
	case !known.around.Contained:
	case len(lost) > 0:
		return fail(namesAdvice, "%s lead to no namespace here, though on the host: %s", say.Plural(len(lost), "name", "names"), detector.List(lost))
	case own[0].Missing && len(names) == 0 && !compared:
		return warn(namesAdvice, "/run/netns is not mounted into this container")
	case len(plain) > 0 && len(names) == 0 && !compared:
		return fail(namesAdvice, "the files under /run/netns are no namespaces: %s", detector.List(plain))
	case len(plain) > 0 && !compared:
		return warn(namesAdvice+"; if they are stale on the host as well, remove them there", "some files under /run/netns are no namespaces: %s", detector.List(plain))
	case private && !own[0].Missing:
		return warn(namesAdvice, "the mount at %s is private: names that come later will not be seen", point)
	}
	text := say.Plural(len(names), "name", "names") + " under /run/netns"
	if len(plain) > 0 {
		text += fmt.Sprintf("; %s: %s", say.Plural(len(plain), "stale file", "stale files"), detector.List(plain))
	}
	return ok("%s", text)
}

// lostNames returns the names that lead to a namespace on the host and to none here. compared is false
// if the host's cannot be listed.
func lostNames(known *facts) (lost []string, compared bool) {
	root := known.around.HostRoot
	host, err := netns.ListNamed(root)
	// A root without the directory may not be the node's.
	if root == "" || err != nil || host[0].Missing {
		return nil, false
	}
	for _, dir := range host {
		for _, name := range dir.Namespaces {
			here, there := filepath.Join(strings.TrimPrefix(dir.Dir, root), name), filepath.Join(dir.Dir, name)
			// The host's last, because the name may have changed meanwhile.
			if !netns.IsNamespace(here) && netns.IsNamespace(there) {
				lost = append(lost, name)
			}
		}
	}
	slices.Sort(lost)
	return lost, true
}

// mountOf returns the mount point of a directory by the text of a mountinfo file (proc_pid_mountinfo(5)).
// private means that later mounts of the host do not reach it.
func mountOf(mountinfo, dir string) (point string, private bool) {
	for line := range strings.Lines(mountinfo) {
		// id parent device root point options [optional fields] - …
		head, _, _ := strings.Cut(line, " - ")
		fields := strings.Fields(head)
		if len(fields) < 6 {
			continue
		}
		at := fields[4]
		// The last mount at one point covers the others.
		if (dir == at || strings.HasPrefix(dir, strings.TrimSuffix(at, "/")+"/")) && len(at) >= len(point) {
			point, private = at, !strings.Contains(head, " shared:") && !strings.Contains(head, " master:")
		}
	}
	return point, private
}

// checkPods checks whether the namespaces behind pod interfaces can be found and entered.
func checkPods(ctx context.Context, known *facts) Check {
	var pods, unsupported []links.Interface
	var unseen, closed []string
	mode, _ := bpf.ResolveMode(bpf.Auto) // what it fails for is another check's subject
	// A pod may end meanwhile, so failures are tried again.
	for try := 0; try == 0 || try < 3 && len(unseen)+len(closed) > 0 && ctx.Err() == nil; try++ {
		time.Sleep(time.Duration(try) * 150 * time.Millisecond)
		var err error
		if pods, unsupported, err = links.Survey(mode == bpf.TCX); err != nil {
			return known.failOrSkip("an agent could not list them either: see \"capabilities\" and \"security\"", fmt.Errorf("listing pods: %w", err))
		}
		unseen, closed = nil, nil
		for _, pod := range pods {
			if err := readNetns(pod); !pod.Seen {
				unseen = append(unseen, pod.Name)
			} else if err != nil {
				closed = append(closed, fmt.Sprintf("%s (%v)", pod.Name, err))
			}
		}
	}
	var others []string
	for _, device := range unsupported {
		// CNI, CRI-O and Docker name a pod's netns; one without a name may be a service's.
		if device.Netns != (netns.Ref{}) && device.Netns.Name == "" {
			continue
		}
		others = append(others, fmt.Sprintf("%s (%s)", device.Name, device.Reason))
	}
	count := say.Plural(len(pods), "pod interface", "pod interfaces")
	switch {
	case len(pods) == 0 && !known.around.HostNetns:
		return fail("set hostNetwork: true in the pod; outside of pods: run it where the pods' veths are", "no pod interface, and this is not the node's network namespace")
	case len(pods) == 0 && len(others) > 0:
		return fail("duplicates among them go unnoticed: dupip observes veth and netkit devices, and macvlan, ipvlan and vlan from Linux 6.6 on", "no pod interface that can be observed, but %s", detector.List(others))
	case len(pods) == 0:
		return ok("no pod interface yet")
	case known.uid != 0:
		return skip("%s; only root can enter their network namespaces", count)
	case len(unseen) == len(pods):
		return fail("see \"processes\" and \"netns names\": one of them has to lead to the pods", "%s, and no network namespace behind any was found", count)
	case len(closed) > 0 && len(unseen)+len(closed) == len(pods):
		return fail("see \"capabilities\" and \"security\": entering network namespaces needs CAP_SYS_ADMIN", "%s, and no network namespace could be entered: %s", count, detector.List(closed))
	case len(closed) > 0:
		return warn("if that stays so, see \"capabilities\"; a pod that ends at this moment is no problem", "%s; not entered: %s", count, detector.List(closed))
	case len(unseen) > 0:
		return warn("see \"processes\" and \"netns names\"; they are observed, but addresses that they forward look like their own", "%s; no network namespace found behind %s", count, detector.List(unseen))
	case len(others) > 0:
		return warn("duplicates among them go unnoticed: dupip observes veth and netkit devices, and macvlan, ipvlan and vlan from Linux 6.6 on", "%s; what cannot be observed: %s", count, detector.List(others))
	}
	return ok("%s, all namespaces found and entered", count)
}

// readNetns enters the namespace behind an interface.
func readNetns(pod links.Interface) error {
	file, err := os.Open(pod.Netns.Path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = netns.Scan(file, pod.InnerIndex)
	return err
}
