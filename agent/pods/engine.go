package pods

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	api "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/dupip/dupip/agent/books"
	"github.com/dupip/dupip/document"
)

const (
	// engineTimeout is how long an engine may take to list its containers: a judgement waits a little longer.
	engineTimeout = time.Second
	// maxContainers limits what is used of a list, maxEngineList the answer in bytes: a container takes about 1,500.
	maxContainers = maxSandboxes
	maxEngineList = 16 << 20
)

// DefaultEngineSockets are where Docker and Podman listen. Those of users are not asked: a user may answer anything.
var DefaultEngineSockets = []string{"/run/docker.sock", "/run/podman/podman.sock"}

// engine is a container engine without CRI: Docker, or Podman by Docker's API.
type engine struct {
	client *client.Client
	status document.EngineStatus
}

// newEngine returns the engine at a socket, which need not exist.
func newEngine(socket string) (*engine, error) {
	transport := &http.Transport{
		DisableKeepAlives: true, MaxResponseHeaderBytes: maxHeaders,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return books.DialHost(ctx, socket) },
	}
	c, err := client.New(client.WithHost("unix://"+socket), client.WithHTTPClient(&http.Client{Transport: transport}),
		client.WithDialContext(transport.DialContext), client.WithHTTPResponseHook(func(r *http.Response) {
			r.Body = struct {
				io.Reader
				io.Closer
			}{io.LimitReader(r.Body, maxEngineList), r.Body}
		}))
	if err != nil {
		return nil, fmt.Errorf("the container engine's socket %s: %w", socket, err)
	}
	return &engine{c, document.EngineStatus{Socket: socket}}, nil
}

// running is a container that runs.
type running struct {
	name string
	// in is the container whose netns it is in, empty for its own.
	in string
	// given are the addresses that the engine gave it, in all of its networks, with the lengths of their subnets.
	given []netip.Prefix
	isPod bool // of Kubernetes, made by cri-dockerd
}

// plainID matches the full id of a container.
var plainID = regexp.MustCompile(`^[0-9a-f]{64}$`)

// list lists the containers that run, by id. It sets the status. Without the socket there are none.
func (e *engine) list(ctx context.Context) (all map[string]running, err error) {
	ctx, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	if errors.Is(books.CheckSocket(e.status.Socket), fs.ErrNotExist) {
		e.status = document.EngineStatus{Socket: e.status.Socket}
		return nil, nil
	}
	defer func() {
		e.status.Containers, e.status.Error = len(all), ""
		if err != nil {
			e.status.Error = document.Text(err.Error(), maxText)
		}
	}()
	if e.status.Name == "" {
		version, err := e.client.ServerVersion(ctx, client.ServerVersionOptions{})
		if err != nil {
			return nil, err
		}
		e.status.Name, e.status.Version = "docker", document.Text(version.Version, maxTitle)
		for _, part := range version.Components {
			if strings.HasPrefix(part.Name, "Podman") {
				e.status.Name = "podman"
			}
		}
	}
	list, err := e.client.ContainerList(ctx, client.ContainerListOptions{})
	if err != nil {
		e.status.Name = "" // another one may answer next time
		return nil, err
	}
	tooManyContainers.Exceeded(max(len(list.Items)-maxContainers, 0))
	all = make(map[string]running, len(list.Items))
	for _, c := range list.Items[:min(len(list.Items), maxContainers)] {
		_, isPod := c.Labels["io.kubernetes.docker.type"]
		r := running{name: nameOf(c.Names), given: givenBy(&c), isPod: isPod}
		if id, ok := strings.CutPrefix(c.HostConfig.NetworkMode, "container:"); ok && plainID.MatchString(id) {
			r.in = id
		}
		if plainID.MatchString(c.ID) {
			all[c.ID] = r
		}
	}
	return all, nil
}

// nameOf returns the name of a container. Those with another slash are what links call it.
func nameOf(names []string) string {
	for _, name := range names {
		if name = strings.TrimPrefix(name, "/"); !strings.Contains(name, "/") && validName(name) {
			return name
		}
	}
	return ""
}

// givenBy returns the addresses that the engine gave a container, none if that is not known.
func givenBy(c *api.Summary) (given []netip.Prefix) {
	if c.NetworkSettings == nil {
		return nil
	}
	for _, n := range c.NetworkSettings.Networks {
		if n == nil {
			continue
		}
		for _, p := range []netip.Prefix{netip.PrefixFrom(n.IPAddress, n.IPPrefixLen), netip.PrefixFrom(n.GlobalIPv6Address, n.GlobalIPv6PrefixLen)} {
			if ip := p.Addr(); p.IsValid() && ip.IsGlobalUnicast() && !ip.Is4In6() {
				given = append(given, p)
			}
		}
	}
	if len(given) > maxIPs {
		return nil // those that are left out would count as not given
	}
	slices.SortFunc(given, netip.Prefix.Compare)
	return given
}
