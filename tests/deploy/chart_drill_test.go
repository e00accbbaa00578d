package deploy_test

import (
	"maps"
	"net/netip"
	"path"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/internal/testneeds"
)

// checkDrill checks the hook of "helm test": two pods at a time, which are no agents, with the rights that a drill needs.
func checkDrill(t *testing.T, o *chartObjects, release string) {
	t.Helper()
	j := o.drill
	if j == nil {
		t.Fatal("no drill")
	}
	want := map[string]string{
		"helm.sh/hook": "test", "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded,hook-failed",
		"helm.sh/hook-output-log-policy": "hook-succeeded,hook-failed",
	}
	if !maps.Equal(j.Annotations, want) {
		t.Errorf("the hook is %v", j.Annotations)
	}
	if wrong := validation.IsDNS1123Label(j.Name + "-1"); wrong != nil {
		t.Errorf("the names of the drill's pods: %v", wrong)
	}
	s := j.Spec
	if *s.Parallelism != 2 || *s.Completions != 2 || *s.CompletionMode != batchv1.IndexedCompletion || s.BackoffLimitPerIndex == nil || *s.BackoffLimitPerIndex != 0 || s.BackoffLimit != nil || s.TTLSecondsAfterFinished == nil {
		t.Errorf("the Job is %+v", s)
	}
	labels, pod := s.Template.Labels, s.Template.Spec
	// The Job ends although no node takes its pods, and otherwise leaves their log.
	if pod.ActiveDeadlineSeconds == nil || s.ActiveDeadlineSeconds == nil || *s.ActiveDeadlineSeconds <= *pod.ActiveDeadlineSeconds {
		t.Errorf("the Job's deadline %v, its pods' %v", s.ActiveDeadlineSeconds, pod.ActiveDeadlineSeconds)
	}
	checkLabels(t, labels)
	for key, value := range o.service.Spec.Selector {
		if key == "app.kubernetes.io/name" && labels[key] == value {
			t.Errorf("the Service selects the drill's pods, %v", labels)
		}
	}
	if labels["app.kubernetes.io/instance"] != release {
		t.Errorf("the drill's pods have the labels %v", labels)
	}
	term := pod.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm
	for key, value := range term.LabelSelector.MatchLabels {
		if labels[key] != value {
			t.Errorf("%s=%s is none of %v", key, value, labels)
		}
	}
	if len(term.LabelSelector.MatchLabels) != 2 || term.TopologyKey != corev1.LabelHostname {
		t.Errorf("two nodes by %+v", term)
	}
	if pod.HostNetwork || pod.HostPID || *pod.AutomountServiceAccountToken || *pod.EnableServiceLinks || pod.RestartPolicy != corev1.RestartPolicyNever ||
		pod.ServiceAccountName != o.pod().ServiceAccountName {
		t.Errorf("the drill's pod is %+v", pod)
	}
	equal(t, "the drill's nodes", pod.NodeSelector, o.pod().NodeSelector)
	c := pod.Containers[0]
	equal(t, "the drill's image", c.Image, o.container().Image)
	rights := c.SecurityContext
	if !slices.Equal(rights.Capabilities.Add, []corev1.Capability{"NET_ADMIN"}) || !slices.Equal(rights.Capabilities.Drop, []corev1.Capability{"ALL"}) ||
		*rights.RunAsUser != 0 || !*rights.ReadOnlyRootFilesystem || *rights.AllowPrivilegeEscalation || rights.Privileged != nil ||
		rights.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("the drill may %+v", rights)
	}
	// Both pods' folder is that of the agent.
	folder := path.Dir(api.DefaultSocket)
	_, agents, err := o.mount(folder)
	if err != nil || agents.HostPath == nil || len(pod.Volumes) != 1 || pod.Volumes[0].HostPath.Path != agents.HostPath.Path || c.VolumeMounts[0].MountPath != folder {
		t.Errorf("the drill mounts %+v, the agent %+v: %v", pod.Volumes, agents, err)
	}
	ip, ok := strings.CutPrefix(c.Args[1], "--ip=")
	if address, err := netip.ParseAddr(ip); !ok || err != nil || c.Args[0] != "drill" || !(detector.Key{Network: "default", IP: address}).IsForDrills() {
		t.Errorf("the arguments are %q: %v", c.Args, err)
	}
}

// All versions of Helm calculate the address.
func TestChartDrill(t *testing.T) {
	testneeds.Slow(t)
	seen()
	for name, v := range helmVersions {
		text, err := v.Run(t.Context(), "", "template", "dupip", chartDir, "--values", "testdata/key.yaml", "--kube-version", "1.30", "--show-only", "templates/tests/drill.yaml")
		if err != nil || !strings.Contains(text, "- --ip=192.0.2.2\n") || strings.Count(text, "kind: ") != 1 {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
}
