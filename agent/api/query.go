package api

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
)

// ErrNoSuchNode is returned (wrapped) by a [Backend] for a [Query] whose Node nobody has.
var ErrNoSuchNode = errors.New("no such node")

// Query says what a document is to tell. Its zero value asks for all that the agent
// itself knows at present.
type Query struct {
	// IP restricts it to one address; the zero Addr is all.
	IP netip.Addr
	// All asks for resolved conflicts, too.
	All bool
	// Cluster asks the other agents, too; Node those of that node name only, which may
	// be the own one.
	Cluster bool
	Node    string
}

// maxNodeName is the longest name a node has.
const maxNodeName = 253

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

// values are the parameters of a request, the reverse of parseQuery.
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
