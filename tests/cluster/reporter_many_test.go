package cluster_test

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"

	"github.com/dupip/dupip/tests/lab"
)

// TestReporterWithManyConflicts: 500 conflicts, of which pods get Events one after the other, while the replica that writes them is
// killed, the API server is away, and both replicas are replaced. Each is in the nodes' summary, and each pod has one Event or is counted.
func TestReporterWithManyConflicts(t *testing.T) {
	const each = 250 // an interface may have 256
	c := newTestCluster(t, "node1", "node2")
	c.importImage()
	c.install("--set reporter.enabled=true")
	c.run("kubectl -n dupip rollout status sts/dupip-reporter --timeout=$PATIENCE")
	c.shop()
	names := []string{"left-0", "left-1", "right-0", "right-1"}
	for n, name := range names {
		c.Apply(pod(name, []string{"node1", "node2"}[n/2]))
	}
	c.running(names...)
	for n, name := range names {
		c.addAddresses([]string{"node1", "node2"}[n/2], name, netip.AddrFrom4([4]byte{10, 240, byte(n % 2), 1}), each)
	}
	var confirmed []lab.Conflict
	c.eventually("500 conflicts", func() (err error) {
		if confirmed, err = c.conflicts("node1", "--cluster", "--state confirmed"); err == nil && len(confirmed) != 2*each {
			err = fmt.Errorf("%d are confirmed", len(confirmed))
		}
		return err
	})
	slices.SortFunc(confirmed, func(a, b lab.Conflict) int { return a.ConfirmedAt.Compare(b.ConfirmedAt) })
	for _, node := range []string{"node1", "node2"} {
		c.eventually("the summary on "+node, func() error {
			list, err := c.eventsAbout("default", node, "DuplicateIPs")
			if err == nil && list[0].CreationTimestamp.Sub(confirmed[30].ConfirmedAt) > lab.Patience(6*time.Second) { // it has whole seconds
				c.Error(fmt.Errorf("it is of %v, the 31st conflict of %v", list[0].CreationTimestamp, confirmed[30].ConfirmedAt))
			}
			return err
		})
	}
	grown := func(what string) {
		before := len(c.podEvents())
		c.eventually("more Events "+what, func() error {
			if now := len(c.podEvents()); now < before+5 {
				return fmt.Errorf("%d, then %d", before, now)
			}
			return nil
		})
	}
	grown("at first")
	leader, _ := c.leader("")
	c.signalReporter(leader, syscall.SIGKILL)
	grown("after the leader was killed")
	c.KillAPIServer()
	time.Sleep(15 * time.Second) // that is the story
	c.StartAPIServer()
	grown("after the API server")
	c.replace("-l app.kubernetes.io/name=dupip-reporter")
	c.run("kubectl -n dupip rollout status sts/dupip-reporter --timeout=$PATIENCE")
	grown("of new replicas")
	c.run("kubectl describe node node1 | sed -n '/^Events/,$p'; kubectl -n shop describe pod left-0 | sed -n '/^Events/,$p' | head -5")

	// They end before most pods have had their turn: those are counted.
	leader, _ = c.leader("")
	c.run("kubectl -n shop delete pod --all")
	c.eventually("no conflict", func() error {
		list, err := c.conflicts("node1", "--cluster", "--state confirmed")
		if err == nil && len(list) > 0 {
			err = fmt.Errorf("%d are open", len(list))
		}
		return err
	})
	skipped := regexp.MustCompile(`(?m)^dupip_reporter_events_skipped_total (.*)$`)
	c.eventually("every pod of every conflict", func() error {
		var p corev1.Pod
		if err := c.Get(&p, "api/v1/namespaces/dupip/pods/"+leader); err != nil {
			return err
		}
		out, err := c.Machines[p.Spec.NodeName].Run(c.Context(), "curl", "-s", fmt.Sprintf("http://%s:9951/metrics", p.Status.PodIP))
		if err != nil {
			return err
		}
		match := skipped.FindStringSubmatch(out)
		if match == nil {
			return fmt.Errorf("no counter in\n%s", out)
		}
		n, err := strconv.ParseFloat(match[1], 64)
		if events := len(c.podEvents()); err == nil && int(n)+events != 4*each {
			err = fmt.Errorf("%d Events, %v left out", events, n)
		}
		return err
	})
	c.Logf("%d of %d pods' Events were written", len(c.podEvents()), 4*each)
}

// addAddresses gives a pod's eth0 more addresses.
func (c *testCluster) addAddresses(machine, name string, first netip.Addr, count int) {
	c.Helper()
	var netns string
	c.eventually("the netns of "+name, func() error {
		var doc struct {
			Bindings []struct{ Netns string }
		}
		if err := c.query(machine, &doc, "bindings --pod shop/"+name); err != nil {
			return err
		}
		if len(doc.Bindings) == 0 {
			return fmt.Errorf("%s has no binding", name)
		}
		netns = doc.Bindings[0].Netns
		return nil
	})
	var script strings.Builder
	for range count {
		fmt.Fprintf(&script, "addr add %v/32 dev eth0\n", first)
		first = first.Next()
	}
	_, err := c.Machines[machine].Run(c.Context(), "sh", "-c", fmt.Sprintf("ip -n %s -batch - <<'END'\n%sEND", netns, script.String()))
	c.Do(err)
}

// podEvents are the Events DuplicateIP of all pods, none twice, by pod and address.
func (c *testCluster) podEvents() map[string]eventsv1.Event {
	c.Helper()
	var list eventsv1.EventList
	c.Do(c.Get(&list, eventsPath("shop")+"?fieldSelector=reportingController=dupip.io/reporter,reason=DuplicateIP"))
	all := make(map[string]eventsv1.Event)
	for _, e := range list.Items {
		_, ip, _ := strings.Cut(e.Note, "dupip explain ")
		id := e.Regarding.Name + " " + ip
		if _, twice := all[id]; twice || ip == "" {
			c.Error(fmt.Errorf("a second Event of %q: %+v", id, e))
		}
		all[id] = e
	}
	return all
}
