package cluster_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/internal/testneeds"
	"github.com/dupip/dupip/tests/lab"
)

// requestsPolicy has the API server note the reporters' requests, and no others.
const requestsPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: ["system:serviceaccount:dupip:dupip-reporter"]
- level: None
`

// TestReporterWithManyBooks: the two reporters that the chart installs, in a cluster with the books of 5,000 nodes: 50,000 Pods and 10,000 of
// Calico's blocks, at rest, when the API server starts again, when the leader is killed, in a rollout, and with hostile objects. The one difference
// that there is remains found, nothing else is, and no reporter is killed for its memory. It prints what they need.
func TestReporterWithManyBooks(t *testing.T) {
	testneeds.Release(t)
	policy, requests := filepath.Join(t.TempDir(), "policy"), filepath.Join(t.TempDir(), "requests")
	if err := os.WriteFile(policy, []byte(requestsPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	c := startTestCluster(t, []string{"--audit-policy-file=" + policy, "--audit-log-path=" + requests}, "node1", "node2")
	c.CalicoResources(bookedRange)
	c.importImage()
	c.install("--set reporter.enabled=true")
	c.run("kubectl -n dupip rollout status sts/dupip-reporter --timeout=$PATIENCE")
	c.shop()
	c.StopControllers()
	b := &booked{testCluster: c, writer: c.NewWriter(writesAtOnce)}
	n := &manyBooks{manyNodes: &manyNodes{testCluster: c, replicas: c.replicas()}, requests: requests, counted: make(map[string]bool), kills: make(map[string]int)}

	n.begin()
	b.make()
	n.row("all objects are made")
	b.crowd = c.startCrowd(len(n.replicas), b.bindings)
	n.crowd = b.crowd
	n.wait("dupip_reporter_members", crowdSize+len(c.Machines))
	n.row("all agents join")
	n.agree()
	n.row("all agents are asked")
	ctx, cancel := context.WithCancel(c.Context())
	var beating sync.WaitGroup
	beating.Go(func() { b.beat(ctx) })
	c.Cleanup(func() { cancel(); beating.Wait() })
	n.begin()
	time.Sleep(atRest)
	n.row("at rest")

	c.KillAPIServer()
	n.stops()
	c.StartAPIServer()
	n.agree()
	n.row("the API server starts again")
	n.killLeader()
	n.agree()
	n.row("the leader is killed")

	lawful := n.lawful()
	b.rollout(bookedPods)
	n.row("a rollout of 5,000 pods")
	n.agree()
	n.row("until books and wire agree")
	lawful()

	b.spite(20, 50)
	n.agree()
	n.row("hostile objects are made")
	n.begin()
	time.Sleep(atRest)
	n.row("hostile objects at rest")
	n.killLeader()
	n.agree()
	n.row("the leader is killed again")
	n.survive()
	t.Logf("two reporters, %d nodes, %d pods, %d blocks\n%s", crowdSize, crowdSize*bookedPods, 2*crowdSize, n.table.String())
}

// atRest is for how long it is measured what the reporters do when nothing happens.
const atRest = time.Minute

// manyBooks measures the reporters and their requests.
type manyBooks struct {
	*manyNodes
	crowd    *crowd
	requests string // the file of the API server
	counted  map[string]bool
	before   []sample
	began    time.Time
	kills    map[string]int // by pod
}

// begin begins a row.
func (n *manyBooks) begin() {
	n.Helper()
	n.asked()
	n.before, n.began = n.sample(), time.Now()
	for _, r := range n.replicas { // the most memory from now on
		n.Do(os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", r.pid), []byte("5"), 0))
	}
}

// row ends a row, and begins the next one.
func (n *manyBooks) row(what string) {
	n.Helper()
	n.manyNodes.row(what, n.before)
	asked, took := n.asked(), time.Since(n.began)
	sum, parts := 0, []string{}
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		sum += asked[name]
		parts = append(parts, fmt.Sprintf("%d %s", asked[name], name))
	}
	row := fmt.Sprintf("%50s %d requests, %.1f a second: %s\n", "", sum, float64(sum)/took.Seconds(), strings.Join(parts, ", "))
	n.Log(row)
	n.table.WriteString(row)
	n.begin()
}

// asked counts the requests since the last call.
func (n *manyBooks) asked() map[string]int {
	n.Helper()
	file, err := os.Open(n.requests)
	n.Do(err)
	defer file.Close()
	asked := make(map[string]int)
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var e struct {
			AuditID, Verb string
			ObjectRef     struct{ Resource string }
		}
		if json.Unmarshal(lines.Bytes(), &e) != nil || n.counted[e.AuditID] { // a watch is there twice; the last line may not be whole
			continue
		}
		n.counted[e.AuditID] = true
		asked[e.Verb+" "+e.ObjectRef.Resource]++
	}
	return asked
}

// leader is the replica that reads the books.
func (n *manyBooks) leader() (replica, lab.Metrics, error) {
	for _, r := range n.replicas {
		text, err := n.get(r, 9951, "/metrics")
		if err != nil {
			continue // it starts again
		}
		metrics, err := lab.ReadMetrics(strings.NewReader(text))
		if err == nil && metrics["dupip_reporter_leader"] == 1 {
			return r, metrics, nil
		}
	}
	return replica{}, nil, errors.New("no replica leads")
}

// reads reports whether the leader reads the books.
func reads(m lab.Metrics) bool {
	return m[`dupip_reporter_book_read{book="calico"}`] == 1 && m[`dupip_reporter_book_read{book="kubernetes"}`] == 1
}

// stops waits until the leader does not read the books.
func (n *manyBooks) stops() {
	n.Helper()
	n.eventually("the end of its watches", func() error {
		if _, m, err := n.leader(); err == nil && reads(m) {
			return errors.New("it reads the books")
		}
		return nil
	})
}

// agree waits until the leader reads all books, has asked all agents, and has found the difference that there is, and says how long that is after
// the beginning of the row.
func (n *manyBooks) agree() {
	n.Helper()
	read := time.Duration(0)
	seconds := time.Tick(time.Second) // more questions would be most of what it costs
	n.Do(lab.Poll(n.Context(), 10*patience, func() error {
		<-seconds
		r, m, err := n.leader()
		if err != nil {
			return err
		}
		if !reads(m) {
			return errors.New("it does not read the books")
		}
		if read == 0 {
			read = time.Since(n.began)
		}
		var doc document.Audit
		text, err := n.get(r, 9953, "/v1/audit?node=node1")
		if err == nil {
			err = json.Unmarshal([]byte(text), &doc)
		}
		if err != nil {
			return err
		}
		if slices.ContainsFunc(doc.Unchecked, func(text string) bool {
			return strings.HasPrefix(text, "book ") || strings.Contains(text, "have not said yet")
		}) {
			return fmt.Errorf("unchecked: %q", doc.Unchecked)
		}
		if len(doc.Findings) != 1 || doc.Findings[0].Kind != document.Unreserved || doc.Findings[0].Node != "worker-0" {
			return fmt.Errorf("there are %d findings: %.3000v", len(doc.Findings), doc.Findings)
		}
		return nil
	}))
	row := fmt.Sprintf("%50s the books are read after %.1f s, all agents asked and the difference found after %.1f s\n", "", read.Seconds(), time.Since(n.began).Seconds())
	n.Log(row)
	n.table.WriteString(row)
}

// lawful expects, until the function is called that it returns, no more findings than the one that there is.
func (n *manyBooks) lawful() (end func()) {
	ctx, cancel := context.WithCancel(n.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		for tick := time.Tick(5 * time.Second); ; {
			select {
			case <-ctx.Done():
				return
			case <-tick:
			}
			_, m, _ := n.leader() // without one there are no findings
			sum, kinds := 0.0, m.Find("dupip_audit_findings")
			for _, kind := range kinds {
				sum += m[kind]
			}
			if sum > 1 {
				n.Error(fmt.Errorf("there are %v findings: %q", sum, kinds))
				return
			}
		}
	})
	return func() { cancel(); watching.Wait() }
}

// killLeader kills the leader and waits until it runs again; the other one leads then.
func (n *manyBooks) killLeader() {
	n.Helper()
	killed, _, err := n.leader()
	n.Do(err)
	n.Do(syscall.Kill(killed.pid, syscall.SIGKILL))
	n.kills[killed.name]++
	i := slices.Index(n.replicas, killed)
	n.before[i] = sample{Usage: lab.Usage{At: time.Now()}}
	n.eventually("its next start", func() error {
		var p corev1.Pod
		if err := n.Get(&p, "api/v1/namespaces/dupip/pods/"+killed.name); err != nil {
			return err
		}
		s := p.Status.ContainerStatuses[0]
		if int(s.RestartCount) != n.kills[killed.name] || s.State.Running == nil {
			return fmt.Errorf("its container is %+v", s)
		}
		n.replicas[i].pid = n.reporterPID(p)
		return nil
	})
	n.crowd.again(killed.name)
}

// survive expects no other deaths of reporters than those of killLeader.
func (n *manyBooks) survive() {
	n.Helper()
	var pods corev1.PodList
	n.Do(n.Get(&pods, "api/v1/namespaces/dupip/pods"))
	for _, p := range pods.Items {
		s := p.Status.ContainerStatuses[0]
		last := s.LastTerminationState.Terminated
		if int(s.RestartCount) != n.kills[p.Name] || last != nil && last.Reason == "OOMKilled" {
			n.Error(fmt.Errorf("%s was started again: %+v", p.Name, s))
		}
	}
}
