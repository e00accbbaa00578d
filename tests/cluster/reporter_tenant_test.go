package cluster_test

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// unreservedName is the name of the reporter's Event about a node's unreserved addresses. Anybody can compute it.
func unreservedName(node string) string {
	return fmt.Sprintf("dupip-%.10x", sha256.Sum256([]byte(node+"\x00UnreservedIP\x00")))
}

// tenant makes a user who may edit one namespace.
func (c *testCluster) tenant() {
	c.Helper()
	c.run("kubectl create namespace tenant; kubectl -n tenant create rolebinding tenant --clusterrole=edit --user=tenant")
	c.eventually("its rights", func() error { // the parts of that role are put together when the cluster has started
		_, err := c.Shell("kubectl -n tenant auth can-i create events.events.k8s.io --as tenant")
		return err
	})
}

// tenantEvent is an Event in the reporter's name, about any object.
func tenantEvent(name string, regarding corev1.ObjectReference) eventsv1.Event {
	now := metav1.NowMicro()
	return eventsv1.Event{
		TypeMeta:   metav1.TypeMeta{APIVersion: "events.k8s.io/v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: name},
		EventTime:  now, ReportingController: "dupip.io/reporter", ReportingInstance: "tenant", Action: "Detected",
		Reason: "DuplicateIP", Type: "Warning", Note: "It is not so.", Regarding: regarding,
		Series: &eventsv1.EventSeries{Count: 7, LastObservedTime: metav1.MicroTime{Time: now.Add(1000 * time.Hour)}},
	}
}

// manyLarge has the tenant make twenty Events instead of the huge one, whose list is longer than the reporter reads at once. With
// them are, in the wrong namespace, those that the reporter is to write later: about node1, and about the end of the conflict of
// two pods.
func (c *testCluster) manyLarge(pods ...string) {
	c.Helper()
	var list []eventsv1.Event
	for n := range 20 {
		e := tenantEvent(fmt.Sprint("large-", n), corev1.ObjectReference{Namespace: "tenant", Name: "any"})
		e.Annotations = map[string]string{"text": strings.Repeat("x", 255_000)}
		list = append(list, e)
	}
	node := corev1.ObjectReference{Kind: "Node", Namespace: "tenant", Name: "node1"}
	list = append(list, tenantEvent(unreservedName(node.Name), node))
	for _, name := range pods {
		own, err := c.dupipEvents(name, "DuplicateIP")
		c.Do(err)
		list = append(list, tenantEvent(own[0].Name+"-resolved", own[0].Regarding))
	}
	c.Kubectl("--as", "tenant", "-n", "tenant", "delete", "events.events.k8s.io", "huge", "--ignore-not-found")
	c.asTenant("create -f", map[string]any{"apiVersion": "v1", "kind": "List", "items": list})
}

// oneHuge has the tenant make one Event that no answer may have: "<" takes six bytes there, and one in the store.
func (c *testCluster) oneHuge() {
	c.Helper()
	e := tenantEvent("huge", corev1.ObjectReference{Namespace: "tenant", Name: "any", FieldPath: strings.Repeat("<", 800_000)})
	c.asTenant("create --raw /apis/events.k8s.io/v1/namespaces/tenant/events -f", e)
}

// resize gives one of the reporter's Events a field of so many bytes, which take six times as many in an answer. Who may edit its
// namespace can.
func (c *testCluster) resize(namespace, name string, size int) {
	c.Helper()
	path := filepath.Join(c.Dir(), "patch.json")
	patch := fmt.Sprintf(`{"involvedObject": {"fieldPath": %q}}`, strings.Repeat("<", size))
	c.Do(os.WriteFile(path, []byte(patch), 0o600))
	c.eventually("the patch", func() error { // a busy server has not taken it when its time is over
		_, err := c.Shell("kubectl -n " + namespace + " patch events " + name + " --type merge --patch-file " + path + " -o name")
		return err
	})
}

// asTenant runs a command of kubectl with an object in a file.
func (c *testCluster) asTenant(command string, object any) {
	c.Helper()
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	path := filepath.Join(c.Dir(), "tenant.json")
	c.Do(encoder.Encode(object), os.WriteFile(path, []byte(text.String()), 0o600))
	c.run("kubectl --as tenant " + command + " " + path + " >/dev/null")
}

// begins waits until a replica that leads writes, and returns its log.
func (c *testCluster) begins(name string) (log string) {
	c.Helper()
	c.eventually(name+" writes", func() (err error) {
		if log, err = c.Shell("kubectl -n dupip logs " + name); err == nil && !strings.Contains(log, "this replica writes Events") {
			err = errors.New("its log is\n" + log)
		}
		return err
	})
	return log
}
