package api

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// ErrNoSuchNode is returned (wrapped) by a [Backend] if no node has the name in [Query].
var ErrNoSuchNode = errors.New("no such node")

// Query selects the content of a document. Its zero value selects what is current on this agent.
type Query struct {
	IP      netip.Addr   // this address only; the zero Addr is all
	Prefix  netip.Prefix // the addresses of this prefix only; the zero Prefix is all
	All     bool         // resolved conflicts, too
	Cluster bool         // the other agents, too
	Node    string       // only agents with this node name, which may be the own one

	// Only what concerns these; empty is all. A conflict concerns a pod that is one of its holders. Pod is "name" or
	// "namespace/name".
	Namespace, Pod, Network string
	State                   string // of conflicts or nodes
}

// States are the values of [Query].State for documents that have it. With the state of resolved conflicts, All is implied.
var (
	ConflictStates = []string{"confirmed", "suspected", "resolved"}
	NodeStates     = []string{"alive", "suspect", "dead", "left"}
)

// maxName bounds a parameter: a node's or pod's name is an RFC 1123 subdomain, a pod's may have its namespace before it.
const maxName = 253 + 1 + 63

// narrow are the parameters of documents that can be about less.
var narrow = []string{"ip", "namespace", "pod", "network", "node", "cluster"}

// parameters are those of each document.
var parameters = map[string][]string{
	"/v1/bindings":  append([]string{"watch"}, narrow...),
	"/v1/conflicts": append([]string{"watch", "all", "state"}, narrow...),
	"/v1/explain":   {"ip", "cluster"},
	"/v1/evidence":  {"ip", "cluster"},
	"/v1/audit":     narrow,
	"/v1/nodes":     {"state"},
	"/v1/status":    {"node"},
}

// parseQuery reads the parameters of a request for a document.
func parseQuery(path string, values url.Values) (q Query, err error) {
	get := func(name string) string { return values.Get(name) }
	for name, given := range values {
		switch known := parameters[path]; {
		case !slices.Contains(known, name) && len(known) == 0:
			return q, fmt.Errorf("%q: %s has no parameters", name, path)
		case !slices.Contains(known, name):
			return q, fmt.Errorf("%q: no such parameter; %s has %s", name, path, strings.Join(known, ", "))
		case len(given) > 1:
			return q, fmt.Errorf("%s: given %d times, once is possible", name, len(given))
		case len(given[0]) > maxName:
			return q, fmt.Errorf("%s: at most %d bytes are possible", name, maxName)
		}
	}
	for name, to := range map[string]*bool{"all": &q.All, "cluster": &q.Cluster, "watch": new(bool)} {
		switch get(name) {
		case "1", "true":
			*to = true
		case "", "0", "false":
		default:
			return q, fmt.Errorf("%s=%s: must be 0 or 1", name, get(name))
		}
	}
	if text := get("ip"); strings.Contains(text, "/") {
		if q.Prefix, err = netip.ParsePrefix(text); q.Prefix.Addr().Is4In6() && q.Prefix.Bits() >= 96 {
			q.Prefix = netip.PrefixFrom(q.Prefix.Addr().Unmap(), q.Prefix.Bits()-96)
		}
		q.Prefix = q.Prefix.Masked()
	} else if text != "" {
		q.IP, err = netip.ParseAddr(text)
		q.IP = q.IP.Unmap()
	}
	if err != nil {
		return q, err
	}
	q.Node, q.Namespace, q.Pod, q.Network, q.State = get("node"), get("namespace"), get("pod"), get("network"), get("state")
	states := ConflictStates
	if path == "/v1/nodes" {
		states = NodeStates
	}
	if q.State != "" && !slices.Contains(states, q.State) {
		return q, fmt.Errorf("state=%s: must be one of %s", q.State, strings.Join(states, ", "))
	}
	q.All = q.All || q.State == "resolved"
	return q, nil
}

// values returns the parameters of a request for a document, the reverse of parseQuery.
func (q Query) values(path string) url.Values {
	values := url.Values{}
	set := func(name, value string) {
		if value != "" && slices.Contains(parameters[path], name) {
			values.Set(name, value)
		}
	}
	if q.IP.IsValid() {
		set("ip", q.IP.String())
	} else if q.Prefix.IsValid() {
		set("ip", q.Prefix.String())
	}
	for name, is := range map[string]bool{"all": q.All, "cluster": q.Cluster} {
		if is {
			set(name, "1")
		}
	}
	if path == "/v1/explain" && !q.Cluster {
		set("cluster", "0") // of the cluster by default
	}
	for name, value := range map[string]string{"node": q.Node, "namespace": q.Namespace, "pod": q.Pod, "network": q.Network, "state": q.State} {
		set(name, value)
	}
	return values
}

// SelectsBinding reports whether q is about a binding of one of its nodes.
func (q Query) SelectsBinding(b Binding) bool {
	return q.selectsAddress(b.Network, b.IP) && q.selectsPod(b.Pod)
}

// SelectsConflict reports whether q is about a conflict.
func (q Query) SelectsConflict(c Conflict) bool {
	return q.selectsAddress(c.Network, c.IP) && (q.State == "" || c.State == q.State) &&
		(q.selectsPod(nil) || slices.ContainsFunc(c.Holders, func(b Binding) bool { return q.selectsPod(b.Pod) }))
}

// SelectsFinding reports whether q is about a finding: either pod counts.
func (q Query) SelectsFinding(f Finding) bool {
	return q.selectsAddress(f.Network, f.IP) && (q.selectsPod(f.Pod) || f.ReservedPod != nil && q.selectsPod(f.ReservedPod))
}

func (q Query) selectsAddress(network, text string) bool {
	if q.Network != "" && q.Network != network {
		return false
	}
	if q.IP.IsValid() {
		return text == q.IP.String()
	}
	ip, err := netip.ParseAddr(text)
	return !q.Prefix.IsValid() || err == nil && q.Prefix.Contains(ip)
}

func (q Query) selectsPod(pod *Pod) bool {
	if q.Namespace == "" && q.Pod == "" {
		return true
	}
	return pod != nil && (q.Namespace == "" || q.Namespace == pod.Namespace) && (q.Pod == "" || q.Pod == pod.Name || q.Pod == pod.String())
}
