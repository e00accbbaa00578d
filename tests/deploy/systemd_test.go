package deploy_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/dupip/dupip/internal/testneeds"
)

const unitFile = "../../deploy/systemd/dupip.service"

// The unit for hosts without Kubernetes gives the agent the rights and the memory that the chart gives it.
func TestUnitIsLikeTheChart(t *testing.T) {
	o, err := decodeChart(readChartFile(t, "../../deploy/dupip.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var capabilities []string
	for _, c := range o.container().SecurityContext.Capabilities.Add {
		capabilities = append(capabilities, "CAP_"+string(c))
	}
	if len(capabilities) == 0 {
		t.Fatal("the chart gives no capability")
	}
	unit := readChartFile(t, unitFile)
	memory, _ := strings.CutSuffix(o.container().Resources.Limits.Memory().String(), "i")
	for key, want := range map[string]string{"CapabilityBoundingSet": strings.Join(capabilities, " "), "MemoryMax": memory} {
		if !strings.Contains(unit, "\n"+key+"="+want+"\n") || strings.Count(unit, "\n"+key+"=") != 1 {
			t.Errorf("the unit does not have once %s=%s", key, want)
		}
	}
}

// systemd rates what an attacker who controls the agent could do from 0 to 10. What it complains of is explained in the unit.
func TestUnitIsHardened(t *testing.T) {
	unit := readChartFile(t, unitFile)
	testneeds.Program(t, "systemd-analyze", "systemd")
	cmd := exec.CommandContext(t.Context(), "systemd-analyze", "security", "--no-pager", "--offline=true", "--threshold=40", unitFile)
	cmd.Env = append(cmd.Environ(), "LC_ALL=C.UTF-8") // for the marks
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "Overall exposure level for dupip.service") {
		t.Errorf("no verdict:\n%s", out)
	}
	for line := range strings.Lines(string(out)) {
		setting, complains := strings.CutPrefix(line, "✗ ")
		name, _, _ := strings.Cut(setting, "=")
		if complains && !strings.Contains(unit, name) {
			t.Errorf("the unit says nothing of %s", setting)
		}
	}
}
