package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/dupip/dupip/cmd/internal/query"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/say"
)

const (
	// maxExamined limits the nodes whose own doctor is asked, and atOnce how many kubectls run for that at one time.
	maxExamined, atOnce = 16, 4
	// maxNamed limits the nodes that a finding names.
	maxNamed = 5
)

func (p *plugin) newDoctor() *cobra.Command {
	var nodes []string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find out what is wrong with dupip in this cluster, and what to do",
		Long: fmt.Sprintf(`Examine dupip in this cluster: are its pods ready, has each node an agent, do the agents know each other, are their versions equal? Then `+
			`the doctor of up to %d agents examines its node, those that are not ready first. It changes nothing.

You need the right to list pods in dupip's namespace. What you may not do is skipped: list nodes, forward ports of the reporter's pods, `+
			`run a program in pods of agents (which is as much as being root on their nodes). The exit code is 1 when anything failed.`, maxExamined),
		Example: `  kubectl dupip doctor
  kubectl dupip doctor --node node1 -o json`,
		Args: query.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			checks, err := p.examine(cmd.Context(), nodes)
			if err != nil {
				return err
			}
			return p.ShowDoctor(cmd, document.NewDoctorReport(checks))
		},
	}
	cmd.Flags().StringArrayVar(&nodes, "node", nil, "only this node's own doctor; repeatable")
	p.AddOutput(cmd)
	return cmd
}

// examine makes the checks of the cluster, and those of its nodes.
func (p *plugin) examine(ctx context.Context, nodes []string) ([]document.DoctorCheck, error) {
	all, err := p.list(ctx, "pods", "--selector="+parts)
	if err != nil {
		return nil, err
	}
	agents := slices.DeleteFunc(slices.Clone(all), func(o object) bool { return o.Metadata.Labels[component] != "agent" })
	reporters := slices.DeleteFunc(all, func(o object) bool { return o.Metadata.Labels[component] != "reporter" })
	checks := []document.DoctorCheck{p.checkPods("agents", agents)}
	if len(agents) == 0 {
		return checks, nil
	}
	checks = append(checks, p.checkCoverage(ctx, agents), p.checkPods("reporter", reporters))
	checks = append(checks, p.checkMembers(ctx, agents, reporters)...)
	return append(checks, p.checkNodes(ctx, agents, nodes)...), nil
}

func outcome(name string, status document.DoctorStatus, advice, format string, args ...any) document.DoctorCheck {
	return document.DoctorCheck{Name: name, Status: status, Finding: detector.Printable(fmt.Sprintf(format, args...)), Advice: detector.Printable(advice)}
}

// checkPods says which pods of a component are not ready, and why.
func (p *plugin) checkPods(name string, pods []object) document.DoctorCheck {
	if len(pods) == 0 && name == "reporter" {
		return outcome(name, document.DoctorWarn, "helm -n "+p.namespace+" upgrade dupip deploy/chart --reset-then-reuse-values --set reporter.enabled=true",
			"none is installed: there are no Events, and kubectl dupip can ask no agent")
	}
	if len(pods) == 0 {
		return outcome(name, document.DoctorFail, "install dupip there, or name its namespace with --dupip-namespace", "no pod of an agent is in namespace %s", p.namespace)
	}
	var away []object
	for _, pod := range pods {
		if !pod.ready() {
			away = append(away, pod)
		}
	}
	if len(away) == 0 {
		return outcome(name, document.DoctorOK, "", "%s ready", say.Plural(len(pods), "pod is", "pods are"))
	}
	first := away[0]
	at := ""
	if first.Spec.NodeName != "" {
		at = " on node " + first.Spec.NodeName
	}
	return outcome(name, document.DoctorFail, fmt.Sprintf("kubectl -n %s describe pod %s; kubectl -n %[1]s logs %[2]s", p.namespace, first.Metadata.Name),
		"%d of %s not ready: pod %s%s: %s", len(away), say.Plural(len(pods), "pod is", "pods are"), first.Metadata.Name, at, first.why())
}

// checkCoverage says which nodes have no agent.
func (p *plugin) checkCoverage(ctx context.Context, agents []object) document.DoctorCheck {
	const name = "coverage"
	nodes, err := p.list(ctx, "nodes", "--selector=kubernetes.io/os=linux")
	if errors.Is(err, errForbidden) {
		return outcome(name, document.DoctorSkip, "", "you may not list nodes, so those without an agent are not known")
	} else if err != nil {
		return outcome(name, document.DoctorFail, "run it again", "the nodes cannot be listed: %v", err)
	}
	has := make(map[string]bool)
	for _, pod := range agents {
		has[pod.Spec.NodeName] = true
	}
	var without []string
	for _, node := range nodes {
		if !has[node.Metadata.Name] {
			without = append(without, node.Metadata.Name)
		}
	}
	if len(without) == 0 {
		return outcome(name, document.DoctorOK, "", "each of %s has an agent", say.Plural(len(nodes), "node", "nodes"))
	}
	return outcome(name, document.DoctorWarn, "see the chart's nodeSelector, affinity and tolerations, and the nodes' taints",
		"%d of %s no agent, so duplicates there are not found: %s", len(without), say.Plural(len(nodes), "node has", "nodes have"), some(without))
}

// checkMembers compares what a reporter knows with the pods.
func (p *plugin) checkMembers(ctx context.Context, agents, reporters []object) []document.DoctorCheck {
	const name, versions = "members", "versions"
	if !slices.ContainsFunc(reporters, object.ready) {
		return []document.DoctorCheck{outcome(name, document.DoctorSkip, "", "no reporter can be asked which agents know each other")}
	}
	f, err := p.connect(ctx, 0)
	if errors.Is(err, errForbidden) {
		return []document.DoctorCheck{outcome(name, document.DoctorSkip, "", "%v", err)}
	} else if err != nil {
		return []document.DoctorCheck{outcome(name, document.DoctorFail, "look at the reporter's log", "%v", err)}
	}
	defer f.stop()
	doc, err := f.client().Nodes(ctx, document.Query{})
	if err != nil {
		return []document.DoctorCheck{outcome(name, document.DoctorFail, "look at the reporter's log", "%v", err)}
	}
	var checks []document.DoctorCheck
	for _, problem := range doc.Cluster.Problems {
		checks = append(checks, outcome(name, document.DoctorWarn, "", "%s", problem))
	}
	alive, of := make(map[string]bool), make(map[string]map[string]bool)
	for _, n := range doc.Nodes {
		if n.State == cluster.Alive && n.Role == "" {
			alive[n.Name] = true
		}
		if n.State == cluster.Alive && n.Version != "" {
			if of[n.Version] == nil {
				of[n.Version] = make(map[string]bool)
			}
			of[n.Version][n.Name] = true
		}
	}
	var unknown []string
	for _, pod := range agents {
		if pod.ready() && !alive[pod.Spec.NodeName] {
			unknown = append(unknown, pod.Spec.NodeName)
		}
	}
	switch {
	case len(unknown) > 0:
		checks = append(checks, outcome(name, document.DoctorWarn, "is port 7951 open between the nodes, UDP and TCP, and is the key the same? See \"dupip doctor\" there",
			"the reporter does not know %s of %s: %s", say.Plural(len(unknown), "agent", "agents"), say.Plural(len(agents), "pod", "pods"), some(unknown)))
	case checks == nil:
		checks = append(checks, outcome(name, document.DoctorOK, "", "%s", say.Plural(len(alive), "agent is there", "agents know of each other")))
	}
	sorted := slices.Sorted(maps.Keys(of))
	switch {
	case len(sorted) > 1:
		texts := make([]string, len(sorted))
		for i, v := range sorted {
			texts[i] = fmt.Sprintf("%s (%d)", v, len(of[v]))
		}
		return append(checks, outcome(versions, document.DoctorWarn, "wait for the end of the update: kubectl -n "+p.namespace+" rollout status ds",
			"there are several: %s", strings.Join(texts, ", ")))
	case len(sorted) == 1 && sorted[0] != p.Version:
		return append(checks, outcome(versions, document.DoctorWarn, "install the plugin of that version", "dupip is %s, this plugin %s", sorted[0], p.Version))
	}
	return append(checks, outcome(versions, document.DoctorOK, "", "all are %s", p.Version))
}

// checkNodes has the doctors of nodes examine these.
func (p *plugin) checkNodes(ctx context.Context, agents []object, nodes []string) []document.DoctorCheck {
	const name = "nodes"
	chosen := slices.DeleteFunc(slices.Clone(agents), func(pod object) bool {
		return !pod.running() || len(nodes) > 0 && !slices.Contains(nodes, pod.Spec.NodeName)
	})
	slices.SortFunc(chosen, func(a, b object) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Spec.NodeName, b.Spec.NodeName))
	})
	chosen = chosen[:min(len(chosen), maxExamined)]
	if len(chosen) == 0 {
		return []document.DoctorCheck{outcome(name, document.DoctorSkip, "", "no agent that runs is there to be asked")}
	}
	reports, errs := make([]document.DoctorReport, len(chosen)), make([]error, len(chosen))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, pod := range chosen {
		group.Go(func() error {
			reports[i], errs[i] = p.askDoctor(ctx, pod.Metadata.Name)
			return nil
		})
	}
	_ = group.Wait()
	return merged(name, chosen, len(agents), reports, errs)
}

// rank is for pods that are not ready to be first.
func rank(pod object) int {
	if pod.ready() {
		return 1
	}
	return 0
}

// askDoctor runs the doctor in an agent's pod.
func (p *plugin) askDoctor(ctx context.Context, pod string) (report document.DoctorReport, err error) {
	cmd, stderr := p.command(ctx, "exec", pod, "--", "dupip", "doctor", "--output=json")
	var out bytes.Buffer
	cmd.Stdout = &out
	err = cmd.Run()
	if json.Unmarshal(out.Bytes(), &report) == nil && len(report.Checks) > 0 {
		return report, nil // the exit code is 1 if something is wrong
	}
	if err == nil {
		err = errors.New("its doctor said nothing")
	}
	return report, p.failure(ctx, err, stderr)
}

// merged says each thing that is wrong once, with the nodes of which it is true.
func merged(name string, pods []object, all int, reports []document.DoctorReport, errs []error) []document.DoctorCheck {
	at := make(map[document.DoctorCheck][]string)
	var order []document.DoctorCheck
	add := func(c document.DoctorCheck, node string) {
		if at[c] == nil {
			order = append(order, c)
		}
		at[c] = append(at[c], node)
	}
	examined := 0
	for i, pod := range pods {
		if errors.Is(errs[i], errForbidden) {
			return []document.DoctorCheck{outcome(name, document.DoctorSkip, "", "you may not run a program in the pods of agents, so run it on a node: sudo dupip doctor")}
		} else if errs[i] != nil {
			add(outcome(name, document.DoctorFail, "look at the agent's log", "%v", errs[i]), pod.Spec.NodeName)
			continue
		}
		examined++
		for _, c := range reports[i].Checks {
			if c.Status == document.DoctorWarn || c.Status == document.DoctorFail {
				add(outcome(c.Name, c.Status, c.Advice, "%s", c.Finding), pod.Spec.NodeName)
			}
		}
	}
	slices.SortStableFunc(order, func(a, b document.DoctorCheck) int { return cmp.Compare(a.Status, b.Status) }) // fail, warn
	checks := []document.DoctorCheck{outcome(name, document.DoctorOK, "", "%d of %s examined", examined, say.Plural(all, "node was", "nodes were"))}
	for _, c := range order {
		nodes := at[c]
		c.Finding = say.Plural(len(nodes), "node", "nodes") + ": " + c.Finding + " (" + some(nodes) + ")"
		checks = append(checks, c)
	}
	return checks
}

// some names the first of many.
func some(names []string) string {
	if more := len(names) - maxNamed; more > 0 {
		return strings.Join(names[:maxNamed], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(names, ", ")
}
