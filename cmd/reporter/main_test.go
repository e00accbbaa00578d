package main

import (
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestDependencies: what runs without rights on the node has no part that needs some, and no client library of Kubernetes.
func TestDependencies(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	list := strings.Fields(string(out))
	if !slices.Contains(list, "github.com/dupip/dupip/gossip") {
		t.Fatalf("%q", list)
	}
	for _, p := range list {
		for _, foreign := range []string{
			"github.com/cilium/ebpf", "github.com/vishvananda/", "github.com/mdlayher/", "google.golang.org/grpc", "k8s.io/",
			"github.com/dupip/dupip/bpf", "github.com/dupip/dupip/agent/links", "github.com/dupip/dupip/agent/netns",
		} {
			if p == "k8s.io/client-go/util/jsonpath" || p == "k8s.io/client-go/third_party/forked/golang/template" { // -o of the commands
				continue
			}
			if strings.HasPrefix(p, foreign) || p == "github.com/dupip/dupip/agent" {
				t.Errorf("it links %s", p)
			}
		}
	}
}

// TestFlags: what cannot work is refused in one line that says what to do.
func TestFlags(t *testing.T) {
	good := []string{"--join=dupip.net", "--bind=127.0.0.1", "--namespace=net", "--pod-name=r-1", "--pod-uid=1234"}
	for flag, want := range map[string]string{
		"--pod-uid=":        "--pod-uid is empty: give it a value",
		"--namespace=":      "--namespace is empty",
		"--bind=10.0.0.1":   "gossip needs a key",
		"--gossip-port=0":   "a port is 1 to 65535",
		"--renew-every=1ms": "must be 1s to 24h",
		"--log-format=xml":  "must be text or json",
		"--log-level=loud":  "must be debug, info, warn or error",
		"--cluster=a\nb":    "cluster",
		"--log-level=info":  "the reporter runs in a pod", // all is well, but this is none
	} {
		cmd := newRoot()
		cmd.SetArgs(append(slices.Clone(good), flag))
		cmd.SetOut(io.Discard)
		t.Setenv("KUBERNETES_SERVICE_HOST", "")
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") && flag != "--cluster=a\nb" {
			t.Errorf("%s: %v, want %s", flag, err, want)
		}
	}
}
