package doctor

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/dupip/dupip/agent/internal/ownnetns"
	"github.com/dupip/dupip/agent/netns"
)

// A device without an end on the node is a pod's, like a veth.
func TestMacvlanIsAPods(t *testing.T) {
	service := ownnetns.NewPod(t)
	run := func(command string) {
		t.Helper()
		if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
	run("ip link add up0 type veth peer name up1")
	t.Cleanup(func() { run("ip link del up0") })
	known := &facts{around: netns.Surroundings{HostNetns: true}}
	before := checkPods(t.Context(), known)
	run(fmt.Sprintf("ip link add odd0 link up0 netns %d type macvlan mode bridge", service.Pid))
	if c := checkPods(t.Context(), known); c.Status != OK || c.Finding == before.Finding || !strings.Contains(c.Finding, "pod interface") {
		t.Errorf("%+v, before it %+v", c, before)
	}
}
