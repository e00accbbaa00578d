package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"github.com/dupip/dupip/document"
)

// Client sends requests to an agent over its Unix socket, or to a reporter over TCP. It is safe for concurrent use.
type Client struct {
	server     string // what answers, for errors
	host, path string // the path is empty for a reporter
	http       *http.Client
}

// NewClient returns a Client for an agent's socket at path.
func NewClient(path string) *Client {
	var dialer net.Dialer
	return &Client{server: "agent", host: "dupip", path: path, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", path)
		},
	}}}
}

// ReporterPort is the TCP port of a reporter's loopback.
const ReporterPort = 9953

// NewReporterClient returns a Client for a reporter, whose port was forwarded to an address (host:port) of this machine.
func NewReporterClient(address string) *Client {
	return &Client{server: "reporter", host: address, http: &http.Client{Transport: new(http.Transport)}} // which no proxy is between
}

// timeout limits every call that is not a watch.
const timeout = 10 * time.Second

// Bindings returns the binding tables of this agent, or with q.Cluster of all agents.
func (c *Client) Bindings(ctx context.Context, q document.Query) (document.Bindings, error) {
	return get[document.Bindings](ctx, c, "/v1/bindings", q)
}

// Conflicts returns the open conflicts, and with q.All the resolved ones.
func (c *Client) Conflicts(ctx context.Context, q document.Query) (document.Conflicts, error) {
	return get[document.Conflicts](ctx, c, "/v1/conflicts", q)
}

// Explain returns the story of q.IP, without q.Cluster that of this agent alone.
func (c *Client) Explain(ctx context.Context, q document.Query) (document.Explanation, error) {
	return get[document.Explanation](ctx, c, "/v1/explain", q)
}

// Audit returns where the books and the wire of this agent's node, or with q.Cluster of all nodes, say different things.
func (c *Client) Audit(ctx context.Context, q document.Query) (document.Audit, error) {
	return get[document.Audit](ctx, c, "/v1/audit", q)
}

// Captures returns what the holders of q.IP sent.
func (c *Client) Captures(ctx context.Context, q document.Query) (document.Captures, error) {
	return get[document.Captures](ctx, c, "/v1/captures", q)
}

// Nodes returns the agents of the cluster.
func (c *Client) Nodes(ctx context.Context, q document.Query) (document.Nodes, error) {
	return get[document.Nodes](ctx, c, "/v1/nodes", q)
}

// Status returns the agent's status, or that of the agent of q.Node.
func (c *Client) Status(ctx context.Context, q document.Query) (document.Status, error) {
	return get[document.Status](ctx, c, "/v1/status", q)
}

// Acknowledge says that somebody works on the conflicts of q.IP, by q.Ack, to all agents. It returns these conflicts.
func (c *Client) Acknowledge(ctx context.Context, q document.Query) (document.Conflicts, error) {
	return ask[document.Conflicts](ctx, c, http.MethodPost, "/v1/ack", q)
}

// WatchConflicts calls begun when the agent has accepted the watch, and then each for every event until ctx ends (nil), each
// fails, or the agent ends the watch. With q.Cluster or q.Node it is about other nodes too, which are asked again and again.
func (c *Client) WatchConflicts(ctx context.Context, q document.Query, begun func(), each func(document.ConflictEvent) error) error {
	return watch(ctx, c, "/v1/conflicts", q, begun, each)
}

// WatchBindings calls each for every change of the bindings of this agent, like [Client.WatchConflicts].
func (c *Client) WatchBindings(ctx context.Context, q document.Query, begun func(), each func(document.BindingEvent) error) error {
	return watch(ctx, c, "/v1/bindings", q, begun, each)
}

func get[T any](ctx context.Context, c *Client, path string, q document.Query) (T, error) {
	return ask[T](ctx, c, http.MethodGet, path, q)
}

func ask[T any](ctx context.Context, c *Client, method, path string, q document.Query) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var doc T
	response, err := c.do(ctx, method, path, valuesOf(q, path))
	if err != nil {
		return doc, err
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&doc); err != nil {
		return doc, fmt.Errorf("reading the %s's response: %w", c.server, err)
	}
	return doc, nil
}

func watch[T any](ctx context.Context, c *Client, path string, q document.Query, begun func(), each func(T) error) error {
	query := valuesOf(q, path)
	query.Set("watch", "1")
	response, err := c.do(ctx, http.MethodGet, path, query)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	begun()
	decoder := json.NewDecoder(response.Body)
	for {
		var doc T
		if err := decoder.Decode(&doc); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("the %s ended the watch: %w", c.server, err)
		}
		if err := each(doc); err != nil {
			return err
		}
	}
}

func (c *Client) do(ctx context.Context, method, path string, query url.Values) (*http.Response, error) {
	target := url.URL{Scheme: "http", Host: c.host, Path: path, RawQuery: query.Encode()}
	request, err := http.NewRequestWithContext(ctx, method, target.String(), nil)
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, c.explain(err)
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		var body document.Error
		if json.NewDecoder(response.Body).Decode(&body) != nil || body.Error == "" {
			return nil, fmt.Errorf("the %s responded with status %s", c.server, response.Status)
		}
		return nil, errors.New(body.Error)
	}
	return response, nil
}

// ErrNoAgent is returned by a [Client] when no process listens on its socket.
var ErrNoAgent = errors.New("no agent is running")

// explain adds to the usual failures to connect what to do about them.
func (c *Client) explain(err error) error {
	switch {
	case c.path == "":
		return fmt.Errorf("connecting to the reporter: %w", err)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w at %s; start one with \"dupip agent\" or name its socket with --api-socket", ErrNoAgent, c.path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("not allowed to use %s; run as root", c.path)
	}
	return fmt.Errorf("connecting to the agent at %s: %w", c.path, err)
}
