package api

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
)

// ErrNoSuchNode is returned (wrapped) by a [Backend] if no node has the name in [Query].
var ErrNoSuchNode = errors.New("no such node")

// Query selects the content of a document. Its zero value selects what is current on this agent.
type Query struct {
	IP      netip.Addr // this address only; the zero Addr is all
	All     bool       // resolved conflicts, too
	Cluster bool       // the other agents, too
	Node    string     // only agents with this node name, which may be the own one
}

const maxNodeName = 253 // RFC 1123 subdomains

// parseQuery reads the parameters of a request.
func parseQuery(r *http.Request) (Query, error) {
	q := Query{All: flag(r, "all"), Cluster: flag(r, "cluster"), Node: r.FormValue("node")}
	if text := r.FormValue("ip"); text != "" {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			return q, err
		}
		q.IP = ip.Unmap()
	}
	if len(q.Node) > maxNodeName {
		return q, fmt.Errorf("node: a name has at most %d bytes", maxNodeName)
	}
	return q, nil
}

// values returns the parameters of a request, the reverse of parseQuery.
func (q Query) values() url.Values {
	values := url.Values{}
	if q.IP.IsValid() {
		values.Set("ip", q.IP.String())
	}
	for name, set := range map[string]bool{"all": q.All, "cluster": q.Cluster} {
		if set {
			values.Set(name, "1")
		}
	}
	if q.Node != "" {
		values.Set("node", q.Node)
	}
	return values
}

func flag(r *http.Request, name string) bool {
	value := r.FormValue(name)
	return value != "" && value != "0" && value != "false"
}
