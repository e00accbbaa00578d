package api

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/dupip/dupip/detector/cluster"
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
	"/v1/ack":       {"ip", "network", "by", "why", "seconds"},
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
		case len(given[0]) > longest(name):
			return q, watch, fmt.Errorf("%s: at most %d bytes are possible", name, longest(name))
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
	if !q.IP.IsValid() && slices.Contains([]string{"/v1/explain", "/v1/captures", "/v1/ack"}, path) {
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
	if q.Ack = (cluster.Ack{By: get("by"), Why: get("why")}); path == "/v1/ack" {
		if q.Ack.Seconds, err = strconv.Atoi(get("seconds")); err != nil {
			return q, watch, errors.New("seconds: a whole number is required, 0 to end an acknowledgement")
		}
		if err := (&document.Ack{By: q.Ack.By, Why: q.Ack.Why, Seconds: q.Ack.Seconds}).Check(); err != nil {
			return q, watch, err
		}
	}
	q.All = q.All || q.State == "resolved" || q.Since > 0
	q.Cluster = q.Cluster || path == "/v1/explain" && get("cluster") == ""
	return q, watch, nil
}

// longest is how many bytes a parameter may have.
func longest(name string) int {
	if name == "why" {
		return document.MaxWhy
	}
	return maxName
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
	if path == "/v1/ack" {
		values.Set("seconds", strconv.Itoa(q.Ack.Seconds))
	}
	if path == "/v1/explain" && !q.Cluster {
		set("cluster", "0") // of the cluster by default
	}
	for name, value := range map[string]string{"node": q.Node, "namespace": q.Namespace, "pod": q.Pod, "network": q.Network, "state": q.State, "by": q.Ack.By, "why": q.Ack.Why} {
		set(name, value)
	}
	return values
}
