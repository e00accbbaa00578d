package cluster_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"

	"github.com/dupip/dupip/tests/lab"
)

// TestReporter: the Events of a duplicate, as people see them, while the replica that writes them is deleted, and stands still,
// and a tenant makes Events in its name.
func TestReporter(t *testing.T) {
	c := startTestCluster(t, []string{"--event-ttl=1m"}, "node1", "node2") // instead of an hour
	c.importImage()
	// Conflicts are confirmed before containerd lists the second pod.
	c.install("--set reporter.enabled=true --set-json 'extraArgs=[\"--min-overlap=50ms\"],reporter.extraArgs=[\"--renew-every=3s\"]'")
	c.run("kubectl -n dupip rollout status sts/dupip-reporter --timeout=$PATIENCE; kubectl -n dupip get pods -o wide")
	c.reporterRights()
	c.reporterMembers()
	c.shop()
	c.tenant()

	ip := c.duplicate("node1", "old", "new", pod("new", "node1"))
	confirmed := c.ownInState("node1", ip, "confirmed")
	c.duplicateEvents(confirmed, ip, "old", "new")
	first, identity := c.leader("")
	c.oneHuge()
	c.replace(first)
	next, _ := c.leader(identity) // the other replica, or the next one of that name
	if log := c.begins(next); !strings.Contains(log, "this replica begins without the others") {
		t.Error("it does not say that it has no list:\n" + log)
	}
	// One that is too large holds neither itself nor others up.
	own, err := c.dupipEvents("new", "DuplicateIP")
	c.Do(err)
	c.resize("shop", own[0].Name, 800_000)
	if err := lab.Poll(c.Context(), 2*patience, func() error {
		list, err := c.dupipEvents("old", "DuplicateIP")
		switch {
		case errors.Is(err, errNoEvent):
			return lab.Final(err)
		case err != nil: // a server that is busy
			return err
		}
		if time.Since(list[0].CreationTimestamp.Time) < 70*time.Second {
			err = fmt.Errorf("its series is %+v", list[0].Series)
		}
		return err
	}); err != nil {
		t.Errorf("an Event that is older than the API server keeps it: %v", err)
	}
	c.run("kubectl -n shop describe pod old | sed -n '/^Events/,$p'")

	// It ends while the one that leads stands still: the other replica takes the Lease.
	still, identity := c.leader("")
	c.resize("shop", own[0].Name, 0)
	c.manyLarge("old", "new")
	c.signalReporter(still, syscall.SIGSTOP)
	c.Kubectl("-n", "shop", "delete", "pod", "new")
	c.ownInState("node1", ip, "resolved")
	for _, name := range []string{"old", "new"} {
		c.eventually("the end", func() error {
			_, err := c.dupipEvents(name, "DuplicateIPResolved")
			return err
		})
	}
	next, _ = c.leader(identity)
	if log := c.begins(next); strings.Contains(log, "reading Events failed") {
		t.Error("it cannot read the tenant's Events:\n" + log)
	}
	c.signalReporter(still, syscall.SIGCONT)
	c.eventually("the end of its turn", func() error {
		out, err := c.Shell("kubectl -n dupip logs " + still)
		if err == nil && !strings.Contains(out, "another replica may write Events now") {
			err = errors.New("its log is\n" + out)
		}
		return err
	})
	// With the second pod the reservation went: IPAM will give the address out again. The node has an Event, which is renewed.
	c.eventually("an Event of the node", func() error {
		out, err := c.Shell("kubectl describe node node1")
		if err == nil && !regexp.MustCompile(`Warning +UnreservedIP .*\(x[2-9] .* addresses that IPAM`).MatchString(out) {
			_, out, _ = strings.Cut(out, "\nEvents:")
			err = fmt.Errorf("its Events are%s", out)
		}
		return err
	})
	if list, err := c.eventsAbout("default", "node1", "UnreservedIP"); err != nil || list[0].Name != unreservedName("node1") {
		t.Errorf("the tenant forged an Event of another name than that of %+v, %v", list, err)
	}
	c.run("kubectl -n shop describe pod old | sed -n '/^Events/,$p'; kubectl -n shop get events.v1.events.k8s.io --field-selector reportingController=dupip.io/reporter; kubectl describe node node1 | sed -n '/^Events/,$p'")
	for _, name := range []string{"old", "new"} {
		for _, reason := range []string{"DuplicateIP", "DuplicateIPResolved"} {
			list, err := c.dupipEvents(name, reason)
			if !errors.Is(err, errNoEvent) { // one that nobody renews lives for a minute
				c.Do(err)
			}
			if len(list) > 1 {
				t.Errorf("%s has %d Events %s", name, len(list), reason)
			}
		}
	}
	log := c.run("kubectl -n dupip logs sts/dupip-reporter --all-pods --prefix")
	if strings.Contains(log, "level=ERROR") {
		t.Error("the log has an error")
	}
}

// signalReporter sends a signal to the process of a reporter's pod.
func (c *testCluster) signalReporter(name string, signal syscall.Signal) {
	c.Helper()
	var p corev1.Pod
	c.Do(c.Get(&p, "api/v1/namespaces/dupip/pods/"+name))
	c.Do(syscall.Kill(c.reporterPID(p), signal))
}

// reporterPID is the process of a reporter's pod.
func (c *testCluster) reporterPID(p corev1.Pod) int {
	c.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/environ")
	c.Do(err)
	for _, path := range paths {
		if environ, _ := os.ReadFile(path); bytes.Contains(environ, []byte("POD_UID="+string(p.UID)+"\x00")) { // it may have ended
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			c.Do(err)
			return pid
		}
	}
	c.Fatal(fmt.Errorf("pod %s has no process", p.Name))
	return 0
}

// duplicateEvents checks the Events of two pods of a confirmed conflict. Both run, so their names are known.
func (c *testCluster) duplicateEvents(conflict lab.Conflict, ip netip.Addr, names ...string) {
	c.Helper()
	known := conflict.ConfirmedAt
	for _, name := range names {
		var p corev1.Pod
		c.Do(c.Get(&p, "api/v1/namespaces/shop/pods/"+name))
		if started := p.Status.ContainerStatuses[0].State.Running.StartedAt; started.After(known) {
			known = started.Time
		}
	}
	for i, name := range names {
		other := names[1-i]
		c.eventually("an Event of "+name, func() error {
			list, err := c.dupipEvents(name, "DuplicateIP")
			if err != nil {
				return err
			}
			e := list[0]
			late := e.CreationTimestamp.Sub(known)
			if late > lab.Patience(5*time.Second) || e.Type != "Warning" || e.Related == nil || e.Related.Name != other || !strings.Contains(e.Note, ip.String()) {
				c.Error(fmt.Errorf("%v after it was confirmed and the pods ran: %+v", late, e))
			}
			return nil
		})
		if text := c.Kubectl("-n", "shop", "describe", "pod", name); !strings.Contains(text, "DuplicateIP ") || !strings.Contains(text, "pod shop/"+other) {
			c.Error("kubectl describe does not show it:\n" + text)
		}
	}
}

// dupipEvents are the reporter's Events about a pod of the shop, at least one.
func (c *testCluster) dupipEvents(name, reason string) ([]eventsv1.Event, error) {
	return c.eventsAbout("shop", name, reason)
}

// eventsPath is where the API has the Events of a namespace.
func eventsPath(namespace string) string {
	return "apis/events.k8s.io/v1/namespaces/" + namespace + "/events"
}

// eventsAbout are the reporter's Events in a namespace about a pod, or in "default" about a node; at least one.
func (c *testCluster) eventsAbout(namespace, name, reason string) ([]eventsv1.Event, error) {
	var list eventsv1.EventList
	err := c.Get(&list, eventsPath(namespace)+"?fieldSelector=reportingController=dupip.io/reporter,reason="+reason)
	list.Items = slices.DeleteFunc(list.Items, func(e eventsv1.Event) bool { return e.Regarding.Name != name })
	if err == nil && len(list.Items) == 0 {
		err = fmt.Errorf("%w %s of %s", errNoEvent, reason, name)
	}
	return list.Items, err
}

var errNoEvent = errors.New("there is no Event")

// leader waits until another identity than one holds the Lease, and returns its pod, too. The next pod of a StatefulSet has the name of the last one.
func (c *testCluster) leader(than string) (pod, identity string) {
	c.Helper()
	c.eventually("a leader", func() error {
		var lease coordinationv1.Lease
		if err := c.Get(&lease, "apis/coordination.k8s.io/v1/namespaces/dupip/leases/dupip-reporter-leader"); err != nil {
			return err
		}
		if id := lease.Spec.HolderIdentity; id != nil {
			identity = *id
		}
		if identity == "" || identity == than {
			return fmt.Errorf("it is %q", identity)
		}
		return nil
	})
	pod, _, _ = strings.Cut(identity, "_")
	return pod, identity
}

// reporterRights: it may do what SECURITY.md says, and nothing else that an account without rights may not.
func (c *testCluster) reporterRights() {
	c.Helper()
	rights := func(namespace, account string) map[string]bool {
		all := make(map[string]bool)
		for line := range strings.Lines(c.Kubectl("auth", "can-i", "--list", "-n", namespace, "--as", "system:serviceaccount:dupip:"+account,
			"--as-group", "system:serviceaccounts", "--as-group", "system:serviceaccounts:dupip", "--as-group", "system:authenticated")) {
			all[strings.Join(strings.Fields(line), " ")] = true
		}
		return all
	}
	const (
		events = "events.events.k8s.io [] [] [create patch list]"
		leases = "leases.coordination.k8s.io [] [dupip-reporter-leader] [get update]"
		acks   = "configmaps [] [dupip-reporter-acks] [get]"
	)
	var books []string // what deploy/README.md lists
	for _, resource := range []string{
		"nodes", "pods", "ipamblocks.crd.projectcalico.org", "ipamblocks.projectcalico.org", "ippools.crd.projectcalico.org", "ippools.projectcalico.org",
		"ciliumnodes.cilium.io", "ippools.whereabouts.cni.cncf.io", "overlappingrangeipreservations.whereabouts.cni.cncf.io", "nodenetworkconfigs.acn.azure.com",
	} {
		books = append(books, resource+" [] [] [get list watch]")
	}
	for namespace, written := range map[string][]string{"dupip": {events, leases, acks}, "default": {events}, "kube-system": {events}} {
		want := slices.Sorted(slices.Values(append(written, books...)))
		nothing := rights(namespace, "dupip")
		var more []string
		for line := range rights(namespace, "dupip-reporter") {
			if !nothing[line] {
				more = append(more, line)
			}
		}
		if slices.Sort(more); !slices.Equal(more, want) {
			c.Error(fmt.Errorf("in %s it may %q, want %q", namespace, more, want))
		}
	}
}

// reporterMembers: agents know the reporters, list them apart, and count them apart.
func (c *testCluster) reporterMembers() {
	c.Helper()
	var pods corev1.PodList
	c.Do(c.Get(&pods, "api/v1/namespaces/dupip/pods?labelSelector=app.kubernetes.io/name=dupip-reporter"))
	c.eventually("two reporters", func() error {
		var doc struct {
			Nodes []struct{ Name, State, Role string }
		}
		if err := c.query("node1", &doc, "nodes"); err != nil {
			return err
		}
		roles := make(map[string]int)
		for _, n := range doc.Nodes {
			roles[n.Role+" "+n.State]++
			if (n.Role == "reporter") != slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return p.Name == n.Name }) {
				return fmt.Errorf("the nodes are %v", doc.Nodes)
			}
		}
		if roles[" alive"] != 2 || roles["reporter alive"] != 2 {
			return fmt.Errorf("the nodes are %v", doc.Nodes)
		}
		return nil
	})
	text, err := c.dupip("node1", "nodes")
	c.Do(err)
	c.Log(text)
	// Commands do not ask them.
	var all struct{ Asked int }
	c.Do(c.query("node1", &all, "conflicts --cluster"))
	if all.Asked != 2 {
		c.Error(fmt.Errorf("%d members are asked", all.Asked))
	}
	// The reporters' pages: kubelet reads them, too. What it knows is for its loopback only.
	for _, p := range pods.Items {
		if out, err := c.Machines[p.Spec.NodeName].Run(c.Context(), "curl", "-s", fmt.Sprintf("http://%s:9953/", p.Status.PodIP)); err == nil || !strings.Contains(err.Error(), "status 7") {
			c.Error(fmt.Errorf("its documents can be reached, or curl failed otherwise: %s (%w)", out, err))
		}
		c.eventually("its metrics", func() error {
			out, err := c.Machines[p.Spec.NodeName].Run(c.Context(), "curl", "-s", fmt.Sprintf("http://%s:9951/metrics", p.Status.PodIP))
			for _, line := range []string{"dupip_reporter_members 2", "dupip_reporter_conflicts 0", "dupip_reporter_events_pending 0"} {
				if err == nil && !strings.Contains(out, line+"\n") {
					err = fmt.Errorf("no line %s in\n%s", line, out)
				}
			}
			c.Log(regexp.MustCompile(`(?m)^(process_resident_memory_bytes|dupip_reporter_leader) .*`).FindAllString(out, -1))
			return err
		})
	}
	metrics, err := c.Machines["node1"].Run(c.Context(), "curl", "-s", "http://127.0.0.1:9951/metrics")
	c.Do(err)
	for _, line := range []string{`dupip_gossip_members{state="alive"} 2`, "dupip_gossip_reporters 2"} {
		if !strings.Contains(metrics, line+"\n") {
			c.Error("no line " + line)
		}
	}
}
