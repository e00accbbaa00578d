package api

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/dupip/dupip/document"
)

// maxName bounds a parameter: a node's or pod's name is an RFC 1123 subdomain, a pod's may have its namespace before it.
const maxName = 253 + 1 + 63

// narrow are the parameters of documents that can be about less.
var narrow = []string{"ip", "namespace", "pod", "network", "node", "cluster"}

// parameters are those of each document.
var parameters = map[string][]string{
	"/v1/bindings":  append([]string{"watch"}, narrow...),
	"/v1/conflicts": append([]string{"watch", "all", "since", "state"}, narrow...),
	"/v1/explain":   {"ip", "cluster"},
	"/v1/captures":  {"ip", "cluster"},
	"/v1/audit":     narrow,
	"/v1/nodes":     {"state"},
	"/v1/status":    {"node"},
}

// parseQuery reads the parameters of a request for a document, or for a watch.
func parseQuery(path string, values url.Values) (q document.Query, watch bool, err error) {
	get := values.Get
	for name, given := range values {
		switch known := parameters[path]; {
		case !slices.Contains(known, name):
			return q, watch, fmt.Errorf("%q: no such parameter; %s has %s", name, path, strings.Join(known, ", "))
		case len(given) > 1:
			return q, watch, fmt.Errorf("%s: given %d times, once is possible", name, len(given))
		case len(given[0]) > maxName:
			return q, watch, fmt.Errorf("%s: at most %d bytes are possible", name, maxName)
		}
	}
	for name, to := range map[string]*bool{"all": &q.All, "cluster": &q.Cluster, "watch": &watch} {
		switch get(name) {
		case "1", "true":
			*to = true
		case "", "0", "false":
		default:
			return q, watch, fmt.Errorf("%s=%s: must be 0 or 1", name, get(name))
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
		return q, watch, err
	}
	if !q.IP.IsValid() && (path == "/v1/explain" || path == "/v1/captures") {
		return q, watch, errors.New("ip: an address is required, not a prefix")
	}
	q.Node, q.Namespace, q.Pod, q.Network, q.State = get("node"), get("namespace"), get("pod"), get("network"), get("state")
	states := document.ConflictStates
	if path == "/v1/nodes" {
		states = document.NodeStates
	}
	if q.State != "" && !slices.Contains(states, q.State) {
		return q, watch, fmt.Errorf("state=%s: must be one of %s", q.State, strings.Join(states, ", "))
	}
	if text := get("since"); text != "" {
		if q.Since, err = document.ParseSince(text); err != nil {
			return q, watch, fmt.Errorf("since=%s: %w", text, err)
		}
	}
	q.All = q.All || q.State == "resolved" || q.Since > 0
	q.Cluster = q.Cluster || path == "/v1/explain" && get("cluster") == ""
	return q, watch, nil
}

// values returns the parameters of a request for a document, the reverse of parseQuery.
func valuesOf(q document.Query, path string) url.Values {
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
	if q.Since > 0 {
		set("since", q.Since.String())
	}
	if path == "/v1/explain" && !q.Cluster {
		set("cluster", "0") // of the cluster by default
	}
	for name, value := range map[string]string{"node": q.Node, "namespace": q.Namespace, "pod": q.Pod, "network": q.Network, "state": q.State} {
		set(name, value)
	}
	return values
}
