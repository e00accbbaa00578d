package cluster_test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"

	"github.com/dupip/dupip/internal/testneeds"
	"github.com/dupip/dupip/tests/lab"
)

// TestReporterWithManyNodes: the two reporters that the chart installs, in a cluster of 5,000 nodes, most of them a crowd. They see all nodes
// and all conflicts, each conflict is in Events, and none of them is killed for its memory. It prints what they need.
func TestReporterWithManyNodes(t *testing.T) {
	testneeds.Release(t)
	c := newTestCluster(t, "node1", "node2")
	c.importImage()
	c.install("--set reporter.enabled=true")
	c.run("kubectl -n dupip rollout status sts/dupip-reporter --timeout=$PATIENCE")
	c.shop()
	n := &manyNodes{testCluster: c, replicas: c.replicas()}
	all := crowdSize + len(c.Machines)

	before := n.sample()
	w := c.startCrowd(len(n.replicas), crowdBindings)
	n.wait("dupip_reporter_members", all)
	n.read("/v1/nodes", `"reported":`, all)
	n.row("all nodes join", before)
	raised := 0
	for _, conflicts := range []int{0, 30, 500} {
		before = n.sample()
		w.raise(raised, conflicts)
		raised = conflicts
		n.wait("dupip_reporter_conflicts", conflicts)
		n.hasEvents(conflicts)
		n.row(fmt.Sprint(conflicts, " conflicts have Events"), before)
		before = n.sample()
		time.Sleep(summaryEvery)
		n.row(fmt.Sprint(conflicts, " conflicts, after that"), before)
	}
	everybody := fmt.Sprintf(`"asked":%d`, all)
	for _, d := range []struct {
		path, text string
		times      int
	}{
		{"/v1/nodes", `"reported":`, all},
		{"/nodes", fmt.Sprintf("<title>%d nodes", all), 1},
		{"/v1/conflicts?cluster=1", everybody, 1},
		{"/v1/audit?cluster=1", everybody, 1},
		{"/v1/explain?ip=10.200.1.1", everybody, 1},
		{"/v1/bindings?cluster=1", everybody, 1},
	} {
		before = n.sample()
		text, took := n.read(d.path, d.text, d.times)
		n.row(fmt.Sprintf("%s in %v, %d nodes missing", d.path, took.Round(10*time.Millisecond), len(missing(text))), before)
		if strings.HasPrefix(d.path, "/v1/conflicts") {
			n.hasConflicts(text, raised)
		}
	}
	before = n.sample()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		_, took := n.read("/", "<title>", 1)
		time.Sleep(max(2*time.Second, 4*took)) // as the page's script
	}
	n.row("its page is open", before)

	var pods corev1.PodList
	c.Do(c.Get(&pods, "api/v1/namespaces/dupip/pods"))
	for _, p := range pods.Items {
		if s := p.Status.ContainerStatuses[0]; s.RestartCount > 0 {
			t.Errorf("%s was started again: %+v", p.Name, s.LastTerminationState)
		}
	}
	t.Logf("two reporters, %d nodes\n%s", all, n.table.String())
}

// manyNodes measures the reporters.
type manyNodes struct {
	*testCluster
	replicas []replica
	table    strings.Builder
}

// replica is a reporter's process.
type replica struct {
	name string
	pid  int
}

// sample is what a replica has used and written so far.
type sample struct {
	lab.Usage
	lab.Metrics
}

// replicas finds the reporters' processes.
func (c *testCluster) replicas() (all []replica) {
	c.Helper()
	var pods corev1.PodList
	c.Do(c.Get(&pods, "api/v1/namespaces/dupip/pods?labelSelector=app.kubernetes.io/name=dupip-reporter"))
	for _, p := range pods.Items {
		all = append(all, replica{p.Name, c.reporterPID(p)})
	}
	if len(all) != 2 {
		c.Fatal(fmt.Errorf("the reporters are %+v", all))
	}
	return all
}

// get reads a page of a replica, as if by a port-forward.
func (n *manyNodes) get(r replica, port int, path string) (string, error) {
	out, err := exec.CommandContext(n.Context(), "nsenter", "--target", fmt.Sprint(r.pid), "--net", "curl", "-s", "--fail-with-body",
		fmt.Sprintf("http://127.0.0.1:%d%s", port, path)).Output()
	if err != nil {
		err = fmt.Errorf("%s of %s: %w\n%s", path, r.name, err, out)
	}
	return string(out), err
}

// read reads a document or page of the first replica until it has a text so many times, and returns how long the last of its tries took.
func (n *manyNodes) read(path, want string, times int) (text string, took time.Duration) {
	n.Helper()
	n.eventually(path, func() (err error) {
		began := time.Now()
		text, err = n.get(n.replicas[0], 9953, path)
		took = time.Since(began)
		if got := strings.Count(text, want); err == nil && got != times {
			err = fmt.Errorf("%d times %q, want %d", got, want, times)
		}
		return err
	})
	return text, took
}

// missing are the nodes that a document says have not answered in time: on a busy machine there are some.
func missing(text string) []string {
	var doc struct{ Missing []string }
	_ = json.Unmarshal([]byte(text), &doc) // a page has none
	return doc.Missing
}

// hasConflicts expects all conflicts in a document, but those whose two nodes it calls missing.
func (n *manyNodes) hasConflicts(text string, conflicts int) {
	n.Helper()
	away := make(map[string]bool)
	for _, node := range missing(text) {
		away[node] = true
	}
	for i := range conflicts {
		ip := fmt.Sprintf("10.200.%d.%d", i>>8, i&255)
		if !strings.Contains(text, `"ip":"`+ip+`"`) && (!away[fmt.Sprint("worker-", i)] || !away[fmt.Sprint("worker-", crowdSize-1-i)]) {
			n.Error("no conflict of " + ip)
		}
	}
}

// sample measures all replicas.
func (n *manyNodes) sample() (all []sample) {
	n.Helper()
	for _, r := range n.replicas {
		text, err := n.get(r, 9951, "/metrics")
		n.Do(err)
		metrics, err := lab.ReadMetrics(strings.NewReader(text))
		n.Do(err)
		usage, err := lab.UsageOf(r.pid)
		n.Do(err)
		all = append(all, sample{usage, metrics})
	}
	return all
}

// written is how many Events were.
func (s sample) written() (sum float64) {
	for name, count := range s.Metrics {
		if strings.HasPrefix(name, "dupip_reporter_events_written_total") {
			sum += count
		}
	}
	return sum
}

// row adds what each replica has used since then.
func (n *manyNodes) row(what string, before []sample) {
	n.Helper()
	for i, now := range n.sample() {
		role := []string{"other", "leader"}[int(now.Metrics["dupip_reporter_leader"])]
		took, written := now.At.Sub(before[i].At), now.written()-before[i].written()
		row := fmt.Sprintf("%-50s %-6s %6.1f s: CPU %6.0f ms, %6.0f a minute; %3d MB, at most %3d; %4.0f writes, %5.1f a minute\n", what, role, took.Seconds(),
			1000*(now.CPU-before[i].CPU).Seconds(), 1000*60*now.Cores(before[i].Usage), now.RSS/1e6, now.Peak/1e6, written, written/took.Minutes())
		n.Log(row)
		n.table.WriteString(row)
	}
}

// wait waits until a metric of all replicas has a value.
func (n *manyNodes) wait(metric string, want int) {
	n.Helper()
	n.eventually(metric, func() error {
		for i, s := range n.sample() {
			if got := s.Metrics[metric]; got != float64(want) {
				return fmt.Errorf("%s of %s is %v, want %d", metric, n.replicas[i].name, got, want)
			}
		}
		return nil
	})
}

// hasEvents waits until each conflict is in Events of both pods or, if there are many, of both nodes.
func (n *manyNodes) hasEvents(conflicts int) {
	n.Helper()
	n.eventually("Events", func() error {
		pods, nodes := n.podEvents(), make(map[string]bool)
		var list eventsv1.EventList
		if err := n.Get(&list, eventsPath("default")+"?fieldSelector=reason=DuplicateIPs"); err != nil {
			return err
		}
		for _, e := range list.Items {
			nodes[e.Regarding.Name] = true
		}
		for i := range conflicts {
			for _, number := range []int{i, crowdSize - 1 - i} {
				pod, ip := fmt.Sprintf("checkout-%d-%d", number, conflictPod), fmt.Sprintf("10.200.%d.%d", i>>8, i&255)
				if _, ok := pods[pod+" "+ip]; !ok && !nodes[fmt.Sprint("worker-", number)] {
					return fmt.Errorf("no Event of %s or its node: there are %d of pods and %d of nodes", pod, len(pods), len(nodes))
				}
			}
		}
		return nil
	})
}
