package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// probe is a question to the container, by HTTP from the node.
type probe struct {
	path string
	port int
	// timeout is for one answer; total is how long it may fail in a row.
	timeout, total time.Duration
}

// toProbe reads a probe; none is one that succeeds.
func toProbe(from *corev1.Probe, ports []corev1.ContainerPort) (probe, error) {
	if from == nil {
		return probe{}, nil
	}
	get := take(&from.HTTPGet)
	if get == nil {
		return probe{}, errNoProbe
	}
	to := probe{path: take(&get.Path)}
	switch port := take(&get.Port); port.Type {
	case intstr.Int:
		to.port = port.IntValue()
	case intstr.String:
		number, err := portOf(port.StrVal, ports)
		if err != nil {
			return probe{}, fmt.Errorf("a probe: %w", err)
		}
		to.port = int(number)
	}
	// As the API server fills in what is not given.
	or := func(n, fallback int32) time.Duration {
		if n == 0 {
			n = fallback
		}
		return time.Duration(n)
	}
	to.timeout = or(take(&from.TimeoutSeconds), 1) * time.Second
	to.total = or(take(&from.PeriodSeconds), 10) * or(take(&from.FailureThreshold), 3) * time.Second
	return to, errors.Join(nothingLeft("a probe", *get), nothingLeft("a probe", *from))
}

// ask asks once, and is nil if the answer is a good one.
func (a *Agent) ask(ctx context.Context, p probe) error {
	if p.path == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	response, err := a.Get(ctx, p.port, p.path)
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

// Get asks a port of the agent by HTTP, at the pod's address, from inside its node. The
// caller closes the body.
func (a *Agent) Get(ctx context.Context, port int, path string) (*http.Response, error) {
	address := net.JoinHostPort(a.Node.Uplink().String(), strconv.Itoa(port))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return nil, err
	}
	return a.Node.HTTPClient().Do(request)
}
