package deploy_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/dupip/dupip/internal/testneeds"
	"github.com/dupip/dupip/tests/lab"
)

// composeFile has the keys of https://compose-spec.io that deploy/compose.yaml uses; any other one is a mistake.
type composeFile struct {
	Name     string                              `json:"name"`
	Services map[string]composeService           `json:"services"`
	Configs  map[string]struct{ Content string } `json:"configs"`
	Volumes  map[string]struct{}                 `json:"volumes"`
}

type composeService struct {
	Image     string           `json:"image"`
	Command   []string         `json:"command"`
	Network   string           `json:"network_mode"`
	Pid       string           `json:"pid"`
	CapDrop   []string         `json:"cap_drop"`
	CapAdd    []string         `json:"cap_add"`
	Security  []string         `json:"security_opt"`
	ReadOnly  bool             `json:"read_only"`
	Memory    string           `json:"mem_limit"`
	Ulimits   map[string]int   `json:"ulimits"`
	Restart   string           `json:"restart"`
	StopGrace string           `json:"stop_grace_period"`
	Volumes   []any            `json:"volumes"`
	Configs   []map[string]any `json:"configs"`
}

// Docker gives the agent what the chart gives it, and the flags exist.
func TestComposeIsLikeTheChart(t *testing.T) {
	var file composeFile
	if err := yaml.UnmarshalStrict([]byte(readChartFile(t, "../../deploy/compose.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	o, err := decodeChart(readChartFile(t, "../../deploy/dupip.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	c, pod, agent := o.container(), o.daemons.Spec.Template.Spec, file.Services["dupip"]
	want := composeService{
		Image: "localhost/dupip:dev", Command: agent.Command, Network: "host", Pid: "host", CapDrop: []string{"ALL"}, ReadOnly: true,
		Security: []string{"apparmor=unconfined", "label=type:" + c.SecurityContext.SELinuxOptions.Type, "no-new-privileges:true"},
		Ulimits:  map[string]int{"memlock": -1}, Restart: "always", StopGrace: "30s",
	}
	for _, capability := range c.SecurityContext.Capabilities.Add {
		want.CapAdd = append(want.CapAdd, string(capability))
	}
	want.Memory = strings.ToLower(strings.TrimSuffix(c.Resources.Limits.Memory().String(), "i"))
	for _, m := range c.VolumeMounts {
		i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		if pod.Volumes[i].HostPath == nil {
			continue // the key
		}
		mount := map[string]any{"type": "bind", "source": pod.Volumes[i].HostPath.Path, "target": m.MountPath, "bind": map[string]any{"create_host_path": true}}
		if m.ReadOnly {
			mount["read_only"] = true
		}
		if m.MountPropagation != nil && *m.MountPropagation == corev1.MountPropagationHostToContainer {
			mount["bind"].(map[string]any)["propagation"] = "rslave"
		}
		want.Volumes = append(want.Volumes, mount)
		if m.MountPath == "/run/netns" { // Docker's names, which the agent reads as well
			docker := map[string]any{"type": "bind", "source": "/run/docker/netns", "target": "/run/docker/netns", "read_only": true, "bind": mount["bind"]}
			want.Volumes = append(want.Volumes, docker)
		}
	}
	if diff := cmp.Diff(want, agent); diff != "" {
		t.Errorf("the agent of compose.yaml (-chart +compose):\n%s", diff)
	}

	program, err := lab.BuildCached("../..", "./cmd/dupip")
	if err != nil {
		t.Fatal(err)
	}
	const nowhere = "/nowhere/dupip.yaml"
	out, err := exec.CommandContext(t.Context(), program, append(agent.Command, "--config="+nowhere)...).CombinedOutput()
	if text := string(out); err == nil || !strings.Contains(text, nowhere) && !strings.Contains(text, "the agent needs root") {
		t.Errorf("the agent refuses its flags: %v\n%s", err, out)
	}
	alertmanager := strings.Join(file.Services["alertmanager"].Command, " ")
	for _, flag := range agent.Command {
		if url, ok := strings.CutPrefix(flag, "--alertmanager=http://"); ok && !strings.Contains(alertmanager, "--web.listen-address="+url+" ") {
			t.Errorf("Alertmanager does not listen at %s: %s", url, alertmanager)
		}
	}
	testneeds.Program(t, "amtool", "prometheus-alertmanager")
	path := filepath.Join(t.TempDir(), "alertmanager.yaml")
	if err := os.WriteFile(path, []byte(file.Configs["alertmanager"].Content), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "amtool", "check-config", path).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// The drop-in for --on-conflict adds the rights that the agent asks for, and no others. systemd understands it.
func TestDropInOfTheUnit(t *testing.T) {
	dropIn := readChartFile(t, "../../deploy/systemd/on-conflict.conf")
	var got []string
	for line := range strings.Lines(dropIn) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			got = append(got, line)
		}
	}
	if diff := cmp.Diff([]string{
		"[Service]", "Environment=DUPIP_ON_CONFLICT=/usr/local/lib/dupip/on-conflict", "Environment=DUPIP_ON_CONFLICT_USER=dupip-notify",
		"CapabilityBoundingSet=CAP_SETUID CAP_SETGID CAP_KILL",
	}, got); diff != "" {
		t.Errorf("the drop-in (-want +got):\n%s", diff)
	}
	testneeds.Program(t, "systemd-analyze", "systemd")
	dir := t.TempDir()
	unit := strings.Replace(readChartFile(t, unitFile), "ExecStart=dupip", "ExecStart=/bin/sh", 1)
	for path, text := range map[string]string{"dupip.service": unit, "dupip.service.d/on-conflict.conf": dropIn} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"verify", "--man=no"}, {"security", "--no-pager", "--offline=true", "--threshold=40"}} {
		out, err := analyze(t.Context(), dir, args...)
		if err != nil || args[0] == "verify" && out != "" || args[0] == "security" && !strings.Contains(out, "✗ CapabilityBoundingSet=~CAP_KILL") {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
}

func analyze(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "systemd-analyze", append(args, filepath.Join(dir, "dupip.service"))...)
	cmd.Env = append(cmd.Environ(), "LC_ALL=C.UTF-8") // for the marks
	out, err := cmd.CombinedOutput()
	return string(out), err
}
