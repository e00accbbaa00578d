package kubelet

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// probe is an HTTP request from the node to the container.
type probe struct {
	// host is empty for the pod's address.
	host, path string
	port       int
	// timeout is for one response; total is how long it may fail in a row.
	timeout, total time.Duration
}

// toProbe reads a probe, with the API server's defaults; a nil probe succeeds.
func toProbe(from *corev1.Probe, ports []corev1.ContainerPort) (p probe, err error) {
	if from == nil {
		return p, nil
	}
	p.host, p.path, p.port = from.HTTPGet.Host, from.HTTPGet.Path, from.HTTPGet.Port.IntValue()
	if port := from.HTTPGet.Port; port.Type == intstr.String {
		i := slices.IndexFunc(ports, func(p corev1.ContainerPort) bool { return p.Name == port.StrVal })
		if i < 0 {
			return p, fmt.Errorf("a probe: there is no port %s", port.StrVal)
		}
		p.port = int(ports[i].ContainerPort)
	}
	p.timeout = time.Duration(cmp.Or(from.TimeoutSeconds, 1)) * time.Second
	p.total = time.Duration(cmp.Or(from.PeriodSeconds, 10)*cmp.Or(from.FailureThreshold, 3)) * time.Second
	return p, nil
}

// runProbe runs a probe once.
func (a *Agent) runProbe(ctx context.Context, p probe) error {
	if p.path == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	response, err := a.get(ctx, p.host, p.port, p.path)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(response.Body, 1000))
	if response.StatusCode < 200 || response.StatusCode >= 400 {
		return fmt.Errorf("%s: %s: %s", p.path, response.Status, body)
	}
	return nil
}

// Get sends an HTTP request to a port of the agent, at the pod's address, from inside its node. The
// caller closes the body.
func (a *Agent) Get(ctx context.Context, port int, path string) (*http.Response, error) {
	return a.get(ctx, "", port, path)
}

func (a *Agent) get(ctx context.Context, host string, port int, path string) (*http.Response, error) {
	address := net.JoinHostPort(cmp.Or(host, a.Node.Uplink().String()), strconv.Itoa(port))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return nil, err
	}
	return a.Node.HTTPClient().Do(request)
}
