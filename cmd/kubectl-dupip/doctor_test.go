package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/dupip/dupip/cmd/internal/query"
	"github.com/dupip/dupip/document"
)

// agent is a pod of an agent on a node; without a reason it is ready.
func agent(name, node, reason string) string {
	status := `"conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": [{"state": {"running": {}}}]`
	if reason != "" {
		status = fmt.Sprintf(`"conditions": [{"type": "Ready", "status": "False"}], "containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}},
			"lastState": {"terminated": {"message": %q}}}]`, reason)
	}
	return fmt.Sprintf(`{"metadata": {"name": %q, "labels": {"app.kubernetes.io/component": "agent"}}, "spec": {"nodeName": %q}, "status": {%s}}`, name, node, status)
}

func node(name string) string { return fmt.Sprintf(`{"metadata": {"name": %q}}`, name) }

func (k *kubectl) reports(pod string, checks ...document.DoctorCheck) {
	k.Helper()
	text, err := json.Marshal(document.NewDoctorReport(checks))
	if err != nil {
		k.Fatal(err)
	}
	k.write("report-"+pod, string(text))
}

var reporterPod = strings.Replace(pod("good", "True"), `"metadata": {`, `"metadata": {"labels": {"app.kubernetes.io/component": "reporter"}, `, 1)

func TestDoctor(t *testing.T) {
	k := newKubectl(t, list(agent("a", "n1", ""), agent("b", "n2", ""), agent("c", "n3", "began\nthe key file is empty: put a key into it"), reporterPod))
	k.write("nodes", list(node("n1"), node("n2"), node("n3"), node("n4")))
	jit := document.DoctorCheck{Name: "bpf jit", Status: document.DoctorWarn, Finding: "the BPF compiler is off", Advice: "run sysctl"}
	k.reports("a", jit, document.DoctorCheck{Name: "kernel", Status: document.DoctorOK, Finding: "Linux"})
	k.reports("b", document.DoctorCheck{Name: "runtime", Status: document.DoctorFail, Finding: "no socket", Advice: "set it"}, jit)
	out, err := k.dupip("doctor")
	if code, _ := errors.AsType[query.ExitError](err); code != 1 {
		t.Error(err)
	}
	for _, want := range []string{
		"agents fail 1 of 3 pods are not ready: pod c on node n3: the key file is empty: put a key into it",
		"coverage warn 1 of 4 nodes have no agent, so duplicates there are not found: n4",
		"reporter ok 1 pod is ready",
		"members ok 2 agents know of each other", "versions warn dupip is 0.2.0, this plugin (devel)",
		"nodes ok 2 of 3 nodes were examined",
		"runtime fail 1 node: no socket (n2)",
		"bpf jit warn 2 nodes: the BPF compiler is off (n1, n2)",
	} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	if strings.Index(out, "runtime") > strings.Index(out, "bpf jit") {
		t.Errorf("what failed comes after warnings:\n%s", out)
	}

	out, _ = k.dupip("doctor", "--node", "n1", "-o", "json")
	var report document.DoctorReport
	if err := json.Unmarshal([]byte(out), &report); err != nil || strings.Contains(out, "no socket") || !strings.Contains(out, "BPF compiler") {
		t.Errorf("%v, %s", err, out)
	}
}

// What somebody may not do is skipped, and what is not installed is said.
func TestDoctorWithoutRights(t *testing.T) {
	k := newKubectl(t, list(agent("a", "n1", "")))
	k.write("nodes", list(node("n1")))
	out, err := k.dupip("doctor")
	if err != nil || !strings.Contains(out, "none is installed") || !strings.Contains(out, "you may not run a program in the pods of") {
		t.Errorf("%v, %s", err, out)
	}
	calls, _ := os.ReadFile(k.dir + "/calls")
	if strings.Contains(string(calls), "port-forward") {
		t.Errorf("no reporter is there, and the calls are\n%s", calls)
	}
	k.says(list(), "", 0)
	if out, err := k.dupip("doctor"); !errors.Is(err, query.ExitError(1)) || !strings.Contains(out, "no pod of an agent is in namespace dupip") {
		t.Errorf("%v, %s", err, out)
	}
}
