package cri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/dupip/dupip/tests/lab"
)

// Kubernetes takes the place of an API server, its controllers and the kubelets, for the commands that dupip prints: kubectl and crictl
// accept those in exactly their form, and refuse all others. A pod that is deleted gets a successor, as a ReplicaSet makes it, and a
// sandbox that is removed while it is ready gets one, as a kubelet makes it: neither may collide again.
type Kubernetes struct {
	nodes []kubeNode

	mu         sync.Mutex
	successors []*Pod
}

type kubeNode struct {
	name     string
	cordoned bool
	*Runtime
}

// sandbox is one of a node.
type sandbox struct {
	node *kubeNode
	*runtimeapi.PodSandbox
}

// AddNode adds a runtime by the name of its node.
func (k *Kubernetes) AddNode(name string, r *Runtime) {
	k.nodes = append(k.nodes, kubeNode{name: name, Runtime: r})
}

// errRefused is the answer to a command in another form than dupip prints.
var errRefused = errors.New("refused: the stand-in does not know this form")

// Shells are a lab's with the programs of this cluster; the administrator has more of them. A command that they refuse fails the test:
// another step may end the conflict all the same.
func (k *Kubernetes) Shells(t *lab.T, more map[string]lab.Program) *lab.Shells {
	t.Helper()
	strict := func(program lab.Program) lab.Program {
		return func(args []string, stdin string) (string, error) {
			out, err := program(args, stdin)
			if errors.Is(err, errRefused) {
				t.Error(err)
			}
			return out, err
		}
	}
	kubectl := strict(k.kubectl)
	own := map[string]lab.Program{"kubectl": kubectl}
	maps.Copy(own, more)
	s := t.Shells(own)
	for i := range k.nodes {
		n := &k.nodes[i]
		crictl := func(args []string, _ string) (string, error) { return k.crictl(n, args) }
		s.Add(n.name, n.Node, map[string]lab.Program{"kubectl": kubectl, "crictl": strict(crictl)})
	}
	return s
}

// Successors are the sandboxes that were made in the place of others.
func (k *Kubernetes) Successors() []*Pod {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.successors)
}

// Alive returns an error unless each of the pods' sandboxes is ready, and so are all successors.
func (k *Kubernetes) Alive(ctx context.Context, pods ...*Pod) error {
	all, err := k.sandboxes(ctx)
	if err != nil {
		return err
	}
	for _, p := range append(pods, k.Successors()...) {
		if !slices.ContainsFunc(all, func(s sandbox) bool { return s.Id == p.ID && s.ready() }) {
			return fmt.Errorf("%s/%s (%.13s) does not live", p.Namespace, p.Name, p.ID)
		}
	}
	return nil
}

func (s sandbox) ready() bool { return s.State == runtimeapi.PodSandboxState_SANDBOX_READY }

func (s sandbox) options() PodOptions {
	m := s.Metadata
	return PodOptions{Namespace: m.Namespace, Name: m.Name, UID: m.Uid, Attempt: m.Attempt}
}

// sandboxes are those of all nodes, the newest first.
func (k *Kubernetes) sandboxes(ctx context.Context) (all []sandbox, err error) {
	for i := range k.nodes {
		n := &k.nodes[i]
		if !n.Running() {
			continue
		}
		list, err := n.client.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
		if err != nil {
			return nil, err
		}
		for _, s := range list.GetItems() {
			all = append(all, sandbox{n, s})
		}
	}
	slices.SortFunc(all, func(a, b sandbox) int { return int(b.CreatedAt - a.CreatedAt) })
	return all, nil
}

// crictl is `crictl rmp -f ID`: ID may be the beginning of one.
func (k *Kubernetes) crictl(n *kubeNode, args []string) (string, error) {
	if len(args) != 3 || args[0] != "rmp" || args[1] != "-f" || len(args[2]) < 13 {
		return "", fmt.Errorf("crictl %q: %w", args, errRefused)
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	all, err := k.sandboxes(ctx)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(all, func(s sandbox) bool { return s.node == n && strings.HasPrefix(s.Id, args[2]) })
	if i < 0 {
		return "", fmt.Errorf("pod sandbox %q: not found", args[2])
	}
	s := all[i]
	if err := n.RemovePod(ctx, &Pod{PodOptions: s.options(), ID: s.Id}); err != nil {
		return "", err
	}
	if s.ready() {
		o := s.options()
		o.Attempt++
		err = k.succeed(ctx, n, o)
	}
	return fmt.Sprintf("Stopped sandbox %s\nRemoved sandbox %[1]s\n", s.Id), err
}

func (k *Kubernetes) succeed(ctx context.Context, n *kubeNode, o PodOptions) error {
	p, err := n.RunPod(ctx, o)
	if err == nil {
		k.mu.Lock()
		k.successors = append(k.successors, p)
		k.mu.Unlock()
	}
	return err
}

// kubectl deletes a pod by its UID, tells the boot ids of nodes and where pods are, and drains a node.
func (k *Kubernetes) kubectl(args []string, stdin string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	switch {
	case len(args) == 5 && args[0] == "delete" && args[1] == "--raw" && args[3] == "-f" && args[4] == "-":
		return k.deletePod(ctx, args[2], stdin)
	case len(args) == 5 && args[0] == "get" && args[1] == "node" && args[3] == "-o" && args[4] == "jsonpath={.status.nodeInfo.bootID}":
		n, err := k.node(args[2])
		if err != nil {
			return "", err
		}
		return n.Node.BootID(), nil
	case slices.Equal(args, []string{"get", "nodes", "-o", "custom-columns=NAME:.metadata.name,BOOT:.status.nodeInfo.bootID"}):
		return k.list("BOOT", func(n *kubeNode) string { return n.Node.BootID() }), nil
	case slices.Equal(args, []string{"get", "nodes", "-o", "custom-columns=NAME:.metadata.name,RANGE:.spec.podCIDRs"}):
		return k.list("RANGE", func(*kubeNode) string { return "<none>" }), nil // the runtimes have their ranges by themselves
	case slices.Equal(args, []string{"get", "pods", "-A", "-o", "wide"}), slices.Equal(args, []string{"get", "pods", "-A", "-o", allAddresses}):
		return k.pods(ctx, args[4] == allAddresses)
	case len(args) == 4 && args[0] == "drain" && args[2] == "--ignore-daemonsets" && args[3] == "--delete-emptydir-data":
		return k.drain(ctx, args[1])
	}
	return "", fmt.Errorf("kubectl %q: %w", args, errRefused)
}

// node is the one that registered last with a name.
func (k *Kubernetes) node(name string) (*kubeNode, error) {
	for i := range slices.Backward(k.nodes) {
		if k.nodes[i].name == name {
			return &k.nodes[i], nil
		}
	}
	return nil, fmt.Errorf("nodes %q not found", name)
}

// list is a table of the nodes that are registered.
func (k *Kubernetes) list(column string, value func(*kubeNode) string) string {
	out := "NAME " + column + "\n"
	for i := range k.nodes {
		if n, err := k.node(k.nodes[i].name); err == nil && n == &k.nodes[i] {
			out += n.name + " " + value(n) + "\n"
		}
	}
	return out
}

// deletePod deletes the pod at a path of the API, if it has the UID of the preconditions.
func (k *Kubernetes) deletePod(ctx context.Context, path, stdin string) (string, error) {
	var o struct {
		APIVersion, Kind string
		Preconditions    struct{ UID string }
	}
	decoder := json.NewDecoder(strings.NewReader(stdin))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&o); err != nil {
		return "", fmt.Errorf("kubectl %q with %q: %w: %w", path, stdin, errRefused, err)
	}
	parts := strings.Split(path, "/")
	if o.APIVersion != "v1" || o.Kind != "DeleteOptions" || o.Preconditions.UID == "" ||
		len(parts) != 7 || strings.Join(parts[:4], "/") != "/api/v1/namespaces" || parts[5] != "pods" {
		return "", fmt.Errorf("kubectl %q with %q: %w", path, stdin, errRefused)
	}
	namespace, name := parts[4], parts[6]
	all, err := k.sandboxes(ctx)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(all, func(s sandbox) bool { return s.Metadata.Namespace == namespace && s.Metadata.Name == name })
	if i < 0 {
		return "", fmt.Errorf("pods %q not found", name)
	}
	pod := all[i]
	if uid := pod.Metadata.Uid; uid != o.Preconditions.UID {
		return "", fmt.Errorf("precondition failed: UID in precondition: %s, UID in object meta: %s", o.Preconditions.UID, uid)
	}
	return "{}\n", k.replace(ctx, pod, pod.node)
}

// replace removes the sandboxes of a pod, and makes its successor on a node.
func (k *Kubernetes) replace(ctx context.Context, pod sandbox, on *kubeNode) error {
	all, err := k.sandboxes(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range all {
		if s.node == pod.node && s.Metadata.Uid == pod.Metadata.Uid {
			errs = append(errs, pod.node.RemovePod(ctx, &Pod{PodOptions: s.options(), ID: s.Id}))
		}
	}
	o := pod.options()
	o.Name, o.UID, o.Attempt = o.Name+"-next", lab.NewUUID(), 0
	return errors.Join(append(errs, k.succeed(ctx, on, o))...)
}

// drain moves the pods of a node that are ready to another one. Those of a DaemonSet, which are in the node's own netns here, stay.
func (k *Kubernetes) drain(ctx context.Context, name string) (string, error) {
	n, err := k.node(name)
	if err != nil {
		return "", err
	}
	n.cordoned = true
	i := slices.IndexFunc(k.nodes, func(other kubeNode) bool { return other.name != name && !other.cordoned && other.Running() })
	if i < 0 {
		return "", errors.New("no other node takes its pods")
	}
	all, err := k.sandboxes(ctx)
	if err != nil {
		return "", err
	}
	out := "node/" + name + " cordoned\n"
	for _, s := range all {
		if s.node != n || !s.ready() {
			continue
		}
		status, err := s.status(ctx)
		if err != nil {
			return out, err
		}
		if status.GetLinux().GetNamespaces().GetOptions().GetNetwork() != runtimeapi.NamespaceMode_NODE {
			if err := k.replace(ctx, s, &k.nodes[i]); err != nil {
				return out, err
			}
			out += "pod/" + s.Metadata.Name + " evicted\n"
		}
	}
	return out, nil
}

func (s sandbox) status(ctx context.Context) (*runtimeapi.PodSandboxStatus, error) {
	answer, err := s.node.client.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.Id})
	return answer.GetStatus(), err
}

// allAddresses are the columns for pods with more addresses than one.
const allAddresses = "custom-columns=NAMESPACE:.metadata.namespace,NAME:.metadata.name,NODE:.spec.nodeName,IPS:.status.podIPs[*].ip"

// pods lists those that run, with their first address or with all of them.
func (k *Kubernetes) pods(ctx context.Context, each bool) (string, error) {
	all, err := k.sandboxes(ctx)
	if err != nil {
		return "", err
	}
	out := "NAMESPACE NAME NODE IP\n"
	for _, s := range all {
		status, err := s.status(ctx)
		if err != nil {
			return "", err
		}
		if !s.ready() {
			continue
		}
		ips := []string{status.GetNetwork().GetIp()}
		for _, more := range status.GetNetwork().GetAdditionalIps() {
			if each {
				ips = append(ips, more.GetIp())
			}
		}
		out += fmt.Sprintf("%s %s %s %s\n", s.Metadata.Namespace, s.Metadata.Name, s.node.name, strings.Join(ips, ","))
	}
	return out, nil
}
