package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"time"
)

// PodRef is the identity of a pod as the API gives it.
type PodRef struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
	Engine    string `json:"engine,omitempty"`
}

// Binding is one holder of one address, as the API has it. The lab has its own declaration, so that
// tests notice changes of the documents.
type Binding struct {
	Network   string     `json:"network"`
	IP        netip.Addr `json:"ip"`
	Node      string     `json:"node"`
	Boot      string     `json:"boot"`
	Interface string     `json:"interface"`
	Bridge    string     `json:"bridge"`
	Ifindex   int        `json:"ifindex"`
	MAC       string     `json:"mac"`
	Netns     string     `json:"netns"`
	Evidence  string     `json:"evidence"`
	FirstSeen time.Time  `json:"firstSeen"`
	LastSeen  time.Time  `json:"lastSeen"`
	// FoundAtStart: the holder may be older than the agent.
	FoundAtStart bool `json:"foundAtStart"`
	// Unreachable: the holder's node does not answer.
	Unreachable bool    `json:"unreachable"`
	Pod         *PodRef `json:"pod,omitempty"`
}

// Conflict is one address with two or more holders, as the API gives it.
type Conflict struct {
	ID          string     `json:"id"`
	Network     string     `json:"network"`
	IP          netip.Addr `json:"ip"`
	State       string     `json:"state"`
	Scope       string     `json:"scope"`
	SecondSeen  time.Time  `json:"secondSeen"`
	SuspectedAt time.Time  `json:"suspectedAt"`
	ConfirmedAt time.Time  `json:"confirmedAt"`
	ResolvedAt  time.Time  `json:"resolvedAt"`
	Holders     []Binding  `json:"holders"`
}

// Finding is an address of which a node's books and the wire say different things, as the API gives it.
type Finding struct {
	Node        string     `json:"node"`
	Kind        string     `json:"kind"`
	IP          netip.Addr `json:"ip"`
	Network     string     `json:"cniNetwork"`
	Since       time.Time  `json:"since"`
	Netns       string     `json:"netns"`
	Pod         *PodRef    `json:"pod,omitempty"`
	Sandbox     string     `json:"sandbox"`
	ReservedFor string     `json:"reservedFor"`
	ReservedPod *PodRef    `json:"reservedPod,omitempty"`
	HeldBy      string     `json:"heldBy"`
	Interface   string     `json:"interface"`
	Gateway     bool       `json:"gateway"`
	By          string     `json:"by"`
	Through     []string   `json:"through"`
	End         string     `json:"end"`
}

func (f Finding) String() string {
	text := f.Kind + " " + f.IP.String()
	if f.Pod != nil {
		text += " of " + f.Pod.Namespace + "/" + f.Pod.Name
	}
	if f.ReservedFor != "" {
		text += ", reserved for " + f.ReservedFor
	}
	return text
}

// Event is one line of the stream of conflicts.
type Event struct {
	// Type is suspected, confirmed, changed, resolved or faded.
	Type     string    `json:"type"`
	At       time.Time `json:"at"`
	Reason   string    `json:"reason"`
	Conflict Conflict  `json:"conflict"`
	// Received is when the lab read the line, on the clock of this process.
	Received time.Time `json:"-"`
}

// Client speaks HTTP and JSON to an agent's Unix socket. Its methods may be called
// from several goroutines.
type Client struct {
	http http.Client
}

// NewClient makes a client; it connects when it is used.
func NewClient(socket string) *Client {
	return &Client{http: http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
		// A restarted agent must not get requests on old connections.
		DisableKeepAlives: true,
	}}}
}

// Get requests a document, for example ("/v1/conflicts", "all=1"), and returns its body.
func (c *Client) Get(ctx context.Context, path, query string) (io.ReadCloser, error) {
	u := url.URL{Scheme: "http", Host: "agent", Path: path, RawQuery: query}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		_ = resp.Body.Close()
		return nil, fmt.Errorf("get %s: %s: %s", path, resp.Status, body)
	}
	return resp.Body, nil
}

func (c *Client) decode(ctx context.Context, path, query string, doc any) error {
	body, err := c.Get(ctx, path, query)
	if err != nil {
		return err
	}
	defer body.Close()
	if err := json.NewDecoder(body).Decode(doc); err != nil {
		return fmt.Errorf("decode %s: %w", path, err)
	}
	return nil
}

// Bindings are all bindings of the agent, or those of one address if ip is valid.
func (c *Client) Bindings(ctx context.Context, ip netip.Addr) ([]Binding, error) {
	query := ""
	if ip.IsValid() {
		query = "ip=" + ip.String()
	}
	var doc struct{ Bindings []Binding }
	err := c.decode(ctx, "/v1/bindings", query, &doc)
	return doc.Bindings, err
}

// Conflicts are the open conflicts of the agent; all adds the resolved ones.
func (c *Client) Conflicts(ctx context.Context, all bool) ([]Conflict, error) {
	query := ""
	if all {
		query = "all=1"
	}
	var doc struct{ Conflicts []Conflict }
	err := c.decode(ctx, "/v1/conflicts", query, &doc)
	return doc.Conflicts, err
}

// Audit are the findings of the agent, and when it read the books: never, if that is zero.
func (c *Client) Audit(ctx context.Context) (findings []Finding, read time.Time, err error) {
	var doc struct {
		Findings []Finding
		At       time.Time
	}
	err = c.decode(ctx, "/v1/audit", "", &doc)
	return doc.Findings, doc.At, err
}

// Status is the agent's status document as it is.
func (c *Client) Status(ctx context.Context) (map[string]any, error) {
	var doc map[string]any
	err := c.decode(ctx, "/v1/status", "", &doc)
	return doc, err
}

// Interface is one of the interfaces in the status of an agent.
type Interface struct {
	Name     string `json:"name"`
	State    string `json:"state"`
	Network  string `json:"network"`
	Peer     string `json:"peer"`
	Primary  bool   `json:"primary"`
	RoleFrom string `json:"roleFrom"`
	Netns    string `json:"netns"`
}

// Attached reports whether the agent sees what the interface sends, unless a program before it drops that.
func (i Interface) Attached() bool { return i.State == "attached" || i.State == "shadowed" }

// Interfaces are all that the agent knows, also those that it does not observe.
func (c *Client) Interfaces(ctx context.Context) ([]Interface, error) {
	var doc struct{ Interfaces []Interface }
	err := c.decode(ctx, "/v1/status", "", &doc)
	return doc.Interfaces, err
}

// WaitInterface polls until the interface with that name satisfies ok.
func (c *Client) WaitInterface(ctx context.Context, name string, ok func(Interface) bool) error {
	return Poll(ctx, noTimeout, func() error {
		list, err := c.Interfaces(ctx)
		if slices.ContainsFunc(list, func(i Interface) bool { return i.Name == name && ok(i) }) {
			return nil
		}
		return errors.Join(err, fmt.Errorf("wait for the interface %s: there is %+v", name, list))
	})
}

// WaitBinding polls until some binding of ip satisfies ok, and returns it.
func (c *Client) WaitBinding(ctx context.Context, ip netip.Addr, ok func(Binding) bool) (found Binding, err error) {
	err = Poll(ctx, noTimeout, func() error {
		bindings, err := c.Bindings(ctx, ip)
		if i := slices.IndexFunc(bindings, ok); i >= 0 {
			found = bindings[i]
			return nil
		}
		return errors.Join(fmt.Errorf("wait for a binding of %v: there is %+v", ip, bindings), err)
	})
	return found, err
}

// HTTPClient is a client that dials inside the netns, to IP addresses only. Each request has its own
// connection, because a restarted server must not get requests on old ones.
func (n *Netns) HTTPClient() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (conn net.Conn, err error) {
			err = n.Exec(func() error {
				conn, err = new(net.Dialer).DialContext(ctx, network, address)
				return err
			})
			return conn, err
		},
	}}
}
