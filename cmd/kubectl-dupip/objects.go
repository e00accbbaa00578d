package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
)

const (
	// parts selects all pods of dupip, reporters those of reporters, whatever the release is called.
	parts     = "app.kubernetes.io/part-of=dupip"
	component = "app.kubernetes.io/component"
	reporters = "dupip.io/component=reporter"
)

// object is a Pod, a Node or a ConfigMap, as far as it is read.
type object struct {
	Metadata struct {
		Name              string
		Labels            map[string]string
		DeletionTimestamp *time.Time
	}
	Data   map[string]string // of a ConfigMap
	Spec   struct{ NodeName string }
	Status struct {
		Phase, Reason, Message string
		Conditions             []struct{ Type, Status, Reason, Message string }
		ContainerStatuses      []struct {
			RestartCount     int
			State, LastState struct {
				Waiting    *struct{ Reason, Message string }
				Running    *struct{ StartedAt time.Time }
				Terminated *struct {
					Reason, Message string
					ExitCode        int
				}
			}
		}
	}
}

// list asks the API server for objects.
func (p *plugin) list(ctx context.Context, kind, selector string) ([]object, error) {
	cmd, stderr := p.command(ctx, "get", kind, selector, "--output=json")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stdin = &out, os.Stdin // it may ask who somebody is
	slow := time.AfterFunc(hintAfter, func() {
		fmt.Fprintln(os.Stderr, "kubectl takes long; if it wants you to log in, do so by \"kubectl auth whoami\" first")
	})
	defer slow.Stop()
	if err := cmd.Run(); err != nil {
		return nil, p.failure(ctx, err, stderr)
	}
	var all struct{ Items []object }
	if err := json.Unmarshal(out.Bytes(), &all); err != nil {
		return nil, fmt.Errorf("reading kubectl's list of %s: %w", kind, err)
	}
	return all.Items, nil
}

// pods names the pods of reporters that are ready.
func (p *plugin) pods(ctx context.Context) (names []string, err error) {
	all, err := p.list(ctx, "pods", "--selector="+reporters)
	if err != nil {
		return nil, err
	}
	for _, pod := range all {
		if pod.ready() {
			names = append(names, pod.Metadata.Name)
		}
	}
	switch {
	case len(all) == 0:
		return nil, fmt.Errorf("no reporter is in namespace %s: install it (helm -n %[1]s upgrade dupip deploy/chart --reset-then-reuse-values --set reporter.enabled=true), "+
			"or name dupip's namespace with --dupip-namespace", p.namespace)
	case len(names) == 0:
		return nil, fmt.Errorf("no reporter is ready, of %d in namespace %s: \"kubectl -n %[2]s describe pods -l %s\" says why", len(all), p.namespace, reporters)
	}
	return names, nil
}

func (o object) ready() bool {
	if o.Metadata.DeletionTimestamp != nil {
		return false
	}
	for _, c := range o.Status.Conditions {
		if c.Type == "Ready" {
			return c.Status == "True"
		}
	}
	return false
}

// running reports whether programs can be run in a pod's container.
func (o object) running() bool {
	return len(o.Status.ContainerStatuses) > 0 && o.Status.ContainerStatuses[0].State.Running != nil
}

// restarted reports whether a container ran before the present one.
func (o object) restarted() bool {
	return len(o.Status.ContainerStatuses) > 0 && o.Status.ContainerStatuses[0].RestartCount > 0
}

// why says why a pod is not ready.
func (o object) why() string {
	if o.Metadata.DeletionTimestamp != nil {
		return "it is being deleted"
	}
	for _, c := range o.Status.ContainerStatuses {
		if ended := cmp.Or(c.State.Terminated, c.LastState.Terminated); ended != nil && ended.Message != "" {
			lines := strings.Split(strings.TrimSpace(ended.Message), "\n")
			return lines[len(lines)-1] // of its log, by the chart's terminationMessagePolicy
		}
		if waiting := c.State.Waiting; waiting != nil {
			return said(waiting.Reason, waiting.Message)
		}
	}
	for _, c := range o.Status.Conditions {
		if c.Status != "True" && c.Message != "" && c.Type != "ContainersReady" && c.Type != "Ready" {
			return said(c.Reason, c.Message)
		}
	}
	return said(cmp.Or(o.Status.Reason, o.Status.Phase, "not known"), o.Status.Message)
}

func said(reason, message string) string {
	if message == "" {
		return reason
	}
	return reason + ": " + message
}
