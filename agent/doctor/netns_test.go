package doctor

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/dupip/dupip/agent/internal/ownnetns"
)

// A device in a netns without a name is in no pod; with a name it is one that cannot be observed.
func TestDevicesInNoPod(t *testing.T) {
	service := ownnetns.NewPod(t)
	name := fmt.Sprint("doctor-test-", os.Getpid())
	run := func(command string) {
		t.Helper()
		if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
	run("ip link add up0 type veth peer name up1")
	t.Cleanup(func() { run("ip link del up0") })
	run(fmt.Sprintf("ip link add odd0 link up0 netns %d type macvlan mode bridge", service.Pid))
	known := &facts{namespaces: namespaces{hostNetns: true}}
	if c := checkPods(t.Context(), known); strings.Contains(c.Finding, "odd0") {
		t.Errorf("%+v: the netns of a service is no pod's", c)
	}
	run(fmt.Sprintf("ip netns attach %s %d", name, service.Pid))
	t.Cleanup(func() { run("ip netns del " + name) })
	if c := checkPods(t.Context(), known); c.Status != Fail || !strings.Contains(c.Finding, "odd0") {
		t.Errorf("%+v, want odd0 to be named", c)
	}
}
