// Package kube asks the API server for what the reporter needs: it writes Events and one Lease, and reads and watches lists of objects.
//
// It is plain HTTP: of an object only the fields that are used are decoded, one object after the other, and every answer is bounded. The
// types of a client library hold whole lists, and whole objects.
package kube

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// accountDir is where Kubernetes mounts the token of a pod's service account.
const accountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

const (
	// timeout bounds each request.
	timeout = 5 * time.Second
	// maxBody bounds an answer that is read. 500 Events of ours have less, but those that others make in our name have any size.
	maxBody = 4 << 20
	// maxRest bounds what is read of an answer that says nothing new, and of a refusal.
	maxRest = 64 << 10
)

// errTooLong is that of an answer beyond maxBody.
var errTooLong = fmt.Errorf("the API server's answer is longer than %d bytes", maxBody)

// Client is a client of the API server. Its methods are safe for concurrent use.
type Client struct {
	base string
	// token is the path of the file with the token. Kubernetes writes a new one into it every hour.
	token string
	http  *http.Client
}

// StatusError is the API server's refusal.
type StatusError struct {
	Code    int
	Message string
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("the API server answers %d: %s", e.Code, e.Message)
}

// Is reports whether an error is an answer of the API server with this code.
func Is(err error, code int) bool {
	status, ok := errors.AsType[*StatusError](err)
	return ok && status.Code == code
}

// Final reports whether an error is an answer that will be the same next time: the request is not valid, or the namespace is being
// deleted. See [Refused].
func Final(err error) bool {
	status, ok := errors.AsType[*StatusError](err)
	return ok && !Refused(err) && status.Code >= 400 && status.Code < 500 && status.Code != http.StatusUnauthorized &&
		status.Code != http.StatusRequestTimeout && status.Code != http.StatusTooManyRequests
}

// Refused reports whether an error is an answer that may be another one later: a right can be given, a policy changed.
func Refused(err error) bool {
	status, ok := errors.AsType[*StatusError](err)
	// The words are those of k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle.
	return ok && status.Code == http.StatusForbidden && !strings.Contains(status.Message, "is being terminated")
}

// InCluster returns the client of a pod.
func InCluster() (*Client, error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, errors.New("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: the reporter runs in a pod")
	}
	ca, err := os.ReadFile(filepath.Join(accountDir, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("reading the API server's certificates: %w; the pod needs its account's token (automountServiceAccountToken)", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("%s has no certificate", filepath.Join(accountDir, "ca.crt"))
	}
	return New("https://"+net.JoinHostPort(host, port), filepath.Join(accountDir, "token"), &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}), nil
}

// New returns a client for an API server and the path of a token.
func New(base, token string, config *tls.Config) *Client {
	return &Client{base: base, token: token, http: &http.Client{
		// HTTP/1.1: a request without an answer then ends its connection, and the next one makes another.
		Transport: &http.Transport{
			TLSClientConfig: config, MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute, ResponseHeaderTimeout: 2 * timeout, // for watches: other requests have less
			// A watch is silent for a long time, and must not wait for an API server that is gone.
			DialContext: (&net.Dialer{Timeout: timeout, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: timeout, Interval: time.Second, Count: 3}}).DialContext,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the token is for the API server only
	}}
}

// do sends a request with a body, unless that is nil, and reads the answer into out, unless that is nil.
func (c *Client) do(ctx context.Context, method, path, contentType string, body, out any) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var content io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(data)
	}
	answer, err := c.send(ctx, method, path, contentType, content)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if out == nil {
		// It is the object, whose other fields may be somebody else's, of any size. A small one is read, so that the next request
		// uses this connection, too.
		_, _ = io.CopyN(io.Discard, answer.Body, maxRest)
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(answer.Body, maxBody+1))
	switch {
	case err != nil:
		return fmt.Errorf("reading the API server's answer: %w", err)
	case len(data) > maxBody:
		return errTooLong
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("reading the API server's answer: %w", err)
	}
	return nil
}

// send sends a request. The caller closes the answer's body. A refusal is a [StatusError].
func (c *Client) send(ctx context.Context, method, path, contentType string, content io.Reader) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, content)
	if err != nil {
		return nil, err
	}
	// Read each time: it is small, and may have been replaced.
	token, err := os.ReadFile(c.token)
	if err != nil {
		return nil, fmt.Errorf("reading the account's token: %w", err)
	}
	r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	r.Header.Set("Accept", "application/json")
	if content != nil {
		r.Header.Set("Content-Type", contentType)
	}
	answer, err := c.http.Do(r)
	if err != nil {
		return nil, fmt.Errorf("asking the API server: %w", err)
	}
	if answer.StatusCode < 300 {
		return answer, nil
	}
	defer answer.Body.Close()
	var status struct{ Message string }
	if json.NewDecoder(io.LimitReader(answer.Body, maxRest)).Decode(&status) != nil || status.Message == "" {
		status.Message = answer.Status
	}
	return nil, &StatusError{answer.StatusCode, fmt.Sprintf("%.500q", status.Message)}
}

const (
	plainJSON  = "application/json"
	mergePatch = "application/merge-patch+json"
)

func eventsPath(namespace, name string) string {
	return "/apis/events.k8s.io/v1/namespaces/" + url.PathEscape(namespace) + "/events" + name
}

// WriteEvent creates an Event. Of one that has a series, it replaces the series only, which lets it live for another time to live.
func (c *Client) WriteEvent(ctx context.Context, e Event) error {
	if e.Series != nil {
		path := eventsPath(e.Metadata.Namespace, "/"+url.PathEscape(e.Metadata.Name))
		return c.do(ctx, http.MethodPatch, path, mergePatch, map[string]any{"series": e.Series}, nil)
	}
	e.APIVersion, e.Kind = "events.k8s.io/v1", "Event"
	return c.do(ctx, http.MethodPost, eventsPath(e.Metadata.Namespace, ""), plainJSON, e, nil)
}

// Events lists the Events of a controller in all namespaces, which anybody who may write Events in one of them can make. It returns an
// error, and what it has read until then, if there are more than most, a single one is too long, or the API server refuses.
func (c *Client) Events(ctx context.Context, controller string, most int) (all []Listed, err error) {
	query := url.Values{"fieldSelector": {"reportingController=" + controller}}
	_, err = List(ctx, c, "/apis/events.k8s.io/v1/events", query, func(e *Listed, err error) error {
		if err != nil {
			return nil // somebody else's, and none that we have written
		}
		if len(all) >= most {
			return fmt.Errorf("there are more than %d", most)
		}
		all = append(all, *e)
		return nil
	})
	return all, err
}

func leasePath(namespace, name string) string {
	return "/apis/coordination.k8s.io/v1/namespaces/" + url.PathEscape(namespace) + "/leases/" + url.PathEscape(name)
}

// ConfigMap reads the data of a ConfigMap.
func (c *Client) ConfigMap(ctx context.Context, namespace, name string) (map[string]string, error) {
	var read struct{ Data map[string]string }
	err := c.do(ctx, http.MethodGet, "/api/v1/namespaces/"+url.PathEscape(namespace)+"/configmaps/"+url.PathEscape(name), "", nil, &read)
	return read.Data, err
}

// Lease reads a Lease.
func (c *Client) Lease(ctx context.Context, namespace, name string) (l Lease, err error) {
	err = c.do(ctx, http.MethodGet, leasePath(namespace, name), "", nil, &l)
	return l, err
}

// PutLease replaces the Lease that was read. The API server refuses with 409 if another was faster.
func (c *Client) PutLease(ctx context.Context, l Lease) (stored Lease, err error) {
	l.APIVersion, l.Kind = "coordination.k8s.io/v1", "Lease"
	err = c.do(ctx, http.MethodPut, leasePath(l.Metadata.Namespace, l.Metadata.Name), plainJSON, l, &stored)
	return stored, err
}
