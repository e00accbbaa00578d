package deploy_test

import (
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/agent/state"
)

// checkChart returns errors for what an API server would reject, what would leave a cluster without
// agents, and what is inconsistent.
func checkChart(t *testing.T, o *chartObjects, release, namespace string) {
	t.Helper()
	if o.daemons == nil || o.service == nil {
		t.Fatal("the DaemonSet or the Service is missing")
	}
	if n := len(o.pod().Containers); n != 1 {
		t.Fatalf("%d containers", n)
	}
	checkMetadata(t, o, release, namespace)
	checkSelectors(t, o)
	checkDaemons(t, o)
	checkEnvironment(t, o)
	checkAccount(t, o)
	checkPorts(t, o)
	checkVolumes(t, o)
	checkSecurity(t, o)
	checkPaths(t, o)
}

func checkMetadata(t *testing.T, o *chartObjects, release, namespace string) {
	t.Helper()
	for _, object := range o.all() {
		if o.reporter.clusterWide(object) {
			if object.GetNamespace() != "" || !strings.HasPrefix(object.GetName(), namespace+"-") {
				t.Errorf("%s may be that of a release in another namespace", object.GetName())
			}
		} else if object.GetNamespace() != namespace && object != o.dashboard {
			t.Errorf("%s is in the namespace %q, not %q", object.GetName(), object.GetNamespace(), namespace)
		}
		wrong := validation.IsDNS1035Label(object.GetName())
		if object == o.dashboard {
			wrong = validation.IsDNS1123Subdomain(object.GetName())
		}
		if wrong != nil {
			t.Errorf("the name %q: %v", object.GetName(), wrong)
		}
		labels := object.GetLabels()
		if labels["app.kubernetes.io/instance"] != release || labels["app.kubernetes.io/name"] == "" || labels["app.kubernetes.io/version"] != "dev" ||
			labels["app.kubernetes.io/part-of"] != "dupip" || labels["app.kubernetes.io/component"] == "" {
			t.Errorf("%T %s has the labels %v", object, object.GetName(), labels)
		}
		checkLabels(t, labels)
	}
	checkLabels(t, o.daemons.Spec.Template.Labels)
	if o.service.Name != o.daemons.Name {
		t.Errorf("the Service %s of the DaemonSet %s", o.service.Name, o.daemons.Name)
	}
}

func checkLabels(t *testing.T, labels map[string]string) {
	t.Helper()
	for key, value := range labels {
		if wrong := slices.Concat(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)); len(wrong) > 0 {
			t.Errorf("the label %s=%s: %v", key, value, wrong)
		}
	}
}

// All that selects pods selects these, by the release too.
func checkSelectors(t *testing.T, o *chartObjects) {
	t.Helper()
	if !selects(o.daemons.Spec.Selector.MatchLabels, o) {
		t.Errorf("the DaemonSet selects %v", o.daemons.Spec.Selector.MatchLabels)
	}
	if !selects(o.service.Spec.Selector, o) {
		t.Errorf("the Service selects %v", o.service.Spec.Selector)
	}
	if s := o.service.Spec; s.ClusterIP != corev1.ClusterIPNone || !s.PublishNotReadyAddresses {
		t.Error("the Service's name does not lead to all agents")
	}
	if o.monitor != nil && !selects(o.monitor.Spec.Selector.MatchLabels, o) {
		t.Errorf("the PodMonitor selects %v", o.monitor.Spec.Selector.MatchLabels)
	}
}

func selects(selector map[string]string, o *chartObjects) bool {
	for key, value := range selector {
		if o.daemons.Spec.Template.Labels[key] != value {
			return false
		}
	}
	return selector["app.kubernetes.io/instance"] != "" && selector["app.kubernetes.io/name"] != ""
}

func checkDaemons(t *testing.T, o *chartObjects) {
	t.Helper()
	switch s := o.daemons.Spec.UpdateStrategy; s.Type {
	case appsv1.OnDeleteDaemonSetStrategyType:
		if s.RollingUpdate != nil {
			t.Error("OnDelete with rollingUpdate")
		}
	case appsv1.RollingUpdateDaemonSetStrategyType:
		if r := s.RollingUpdate; r != nil {
			if r.MaxSurge != nil {
				t.Error("with maxSurge, where the ports are the node's")
			}
			if n := r.MaxUnavailable; n != nil && (*n == intstr.FromInt32(0) || n.StrVal == "0%") {
				t.Error("maxUnavailable is 0")
			}
		}
	default:
		t.Errorf("the strategy %q", s.Type)
	}
	pod := o.pod()
	if !pod.HostNetwork || !pod.HostPID || pod.DNSPolicy != corev1.DNSClusterFirstWithHostNet {
		t.Errorf("hostNetwork %t, hostPID %t, dnsPolicy %s", pod.HostNetwork, pod.HostPID, pod.DNSPolicy)
	}
	if pod.RestartPolicy != "" && pod.RestartPolicy != corev1.RestartPolicyAlways {
		t.Errorf("restartPolicy %s", pod.RestartPolicy)
	}
	for _, toleration := range pod.Tolerations {
		if toleration.Operator == corev1.TolerationOpExists && toleration.Value != "" ||
			toleration.Key == "" && toleration.Operator != corev1.TolerationOpExists {
			t.Errorf("the toleration %+v", toleration)
		}
	}
	for name, request := range o.container().Resources.Requests {
		if limit, ok := o.container().Resources.Limits[name]; ok && limit.Cmp(request) < 0 {
			t.Errorf("%s: requests %s, limit %s", name, &request, &limit)
		}
	}
}

func checkEnvironment(t *testing.T, o *chartObjects) {
	t.Helper()
	names := make(map[string]bool)
	for _, e := range o.container().Env {
		if wrong := validation.IsEnvVarName(e.Name); wrong != nil || names[e.Name] {
			t.Errorf("variable %q: %v, there already: %t", e.Name, wrong, names[e.Name])
		}
		names[e.Name] = true
		if (e.Value == "") == (e.ValueFrom == nil) {
			t.Errorf("variable %s has the value %q and %v", e.Name, e.Value, e.ValueFrom)
		}
	}
	if args := o.container().Args; len(args) == 0 || args[0] != "agent" {
		t.Errorf("the arguments are %q", args)
	}
}

func checkAccount(t *testing.T, o *chartObjects) {
	t.Helper()
	if token := o.pod().AutomountServiceAccountToken; token == nil || *token {
		t.Error("the pods mount a token")
	}
	if o.account == nil {
		return
	}
	if token := o.account.AutomountServiceAccountToken; token == nil || *token {
		t.Error("the account gives tokens")
	}
	if o.account.Name != o.pod().ServiceAccountName {
		t.Errorf("the pods are of the account %s, not %s", o.pod().ServiceAccountName, o.account.Name)
	}
}

func checkPorts(t *testing.T, o *chartObjects) {
	t.Helper()
	type port struct {
		number   int32
		protocol corev1.Protocol
	}
	taken := make(map[int32]bool)
	named := make(map[string]port)
	protocol := func(p corev1.Protocol) corev1.Protocol {
		if p == "" {
			return corev1.ProtocolTCP
		}
		return p
	}
	for _, p := range o.container().Ports {
		if wrong := validation.IsValidPortName(p.Name); wrong != nil {
			t.Errorf("the port %q: %v", p.Name, wrong)
		}
		if wrong := validation.IsValidPortNum(int(p.ContainerPort)); wrong != nil {
			t.Errorf("the port %q: %v", p.Name, wrong)
		}
		if p.HostPort != 0 && p.HostPort != p.ContainerPort {
			t.Errorf("the port %q is %d, and %d on the host", p.Name, p.ContainerPort, p.HostPort)
		}
		// Also of another protocol: updates are merged by the number alone.
		if _, twice := named[p.Name]; twice || taken[p.ContainerPort] {
			t.Errorf("the port %q is there twice", p.Name)
		}
		named[p.Name], taken[p.ContainerPort] = port{p.ContainerPort, protocol(p.Protocol)}, true
	}
	for _, p := range o.service.Spec.Ports {
		if is := (port{p.Port, protocol(p.Protocol)}); named[p.Name] != is || p.TargetPort != (intstr.IntOrString{}) {
			t.Errorf("the Service's port %q is %v, the pods' %v", p.Name, is, named[p.Name])
		}
	}
	for what, probe := range map[string]*corev1.Probe{
		"startup": o.container().StartupProbe, "liveness": o.container().LivenessProbe, "readiness": o.container().ReadinessProbe,
	} {
		if what == "liveness" && probe != nil && probe.PeriodSeconds < 10 {
			t.Errorf("the liveness probe runs every %d s: a busy agent is killed too soon", probe.PeriodSeconds)
		}
		if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Port != intstr.FromString("metrics") {
			t.Errorf("the %s probe is not of the port metrics", what)
			continue
		}
		// Whoever is about to attach is alive; an answer may take the agent five seconds.
		if path := map[bool]string{true: "/readyz", false: "/healthz"}[what == "readiness"]; probe.HTTPGet.Path != path {
			t.Errorf("the %s probe requests %s, want %s", what, probe.HTTPGet.Path, path)
		}
		if probe.TimeoutSeconds <= 5 {
			t.Errorf("the %s probe waits %d s, the agent takes up to 5", what, probe.TimeoutSeconds)
		}
	}
	if o.monitor != nil {
		endpoints := o.monitor.Spec.PodMetricsEndpoints
		if len(endpoints) != 1 || endpoints[0].Port == nil || *endpoints[0].Port != "metrics" {
			t.Errorf("the PodMonitor is of %+v", endpoints)
		}
	}
	numbers := func(name string) string { return strconv.Itoa(int(named[name].number)) }
	checkMetricsAddress(t, o, numbers("metrics"))
	if got, _ := o.setting("--gossip-port"); got != numbers("gossip") {
		t.Errorf("--gossip-port=%s, and the port is %s", got, numbers("gossip"))
	}
	if got, _ := o.setting("--join"); got != o.service.Name+"."+o.service.Namespace {
		t.Errorf("--join=%s, the Service is %s in %s", got, o.service.Name, o.service.Namespace)
	}
}

// checkMetricsAddress checks that probes and Prometheus ask where the agent listens. Without a host both ask
// at the pod's address, which is the node's.
func checkMetricsAddress(t *testing.T, o *chartObjects, wantPort string) {
	t.Helper()
	listen, _ := o.setting("--metrics-listen")
	host, port, err := net.SplitHostPort(listen)
	if err != nil || port != wantPort {
		t.Errorf("--metrics-listen=%s, and the port is %s (%v)", listen, wantPort, err)
	}
	want := host
	if host == "$(DUPIP_ADVERTISE)" {
		want = ""
		env := o.container().Env
		at := slices.IndexFunc(env, func(e corev1.EnvVar) bool { return e.Value == listen })
		if !slices.ContainsFunc(env[:at], func(e corev1.EnvVar) bool {
			return e.Name == "DUPIP_ADVERTISE" && e.ValueFrom.FieldRef.FieldPath == "status.hostIP"
		}) {
			t.Errorf("--metrics-listen=%s, and no variable before it is the node's address", listen)
		}
	}
	for _, probe := range []*corev1.Probe{o.container().StartupProbe, o.container().LivenessProbe, o.container().ReadinessProbe} {
		if probe.HTTPGet.Host != want {
			t.Errorf("--metrics-listen=%s, and a probe asks at %q", listen, probe.HTTPGet.Host)
		}
	}
	if o.monitor != nil && want != "" {
		t.Errorf("--metrics-listen=%s, and a PodMonitor", listen)
	}
}

func checkVolumes(t *testing.T, o *chartObjects) {
	t.Helper()
	volumes := make(map[string]bool)
	for _, v := range o.pod().Volumes {
		if wrong := validation.IsDNS1123Label(v.Name); wrong != nil || volumes[v.Name] {
			t.Errorf("volume %q: %v, there already: %t", v.Name, wrong, volumes[v.Name])
		}
		volumes[v.Name] = true
		if h := v.HostPath; h != nil && (!path.IsAbs(h.Path) || path.Clean(h.Path) != h.Path) {
			t.Errorf("volume %q is the host's %q", v.Name, h.Path)
		}
		if s := v.Secret; s != nil && v.Name != "ca" /* of a user's own */ && (s.DefaultMode == nil || *s.DefaultMode != 0o400 || s.Optional != nil && *s.Optional) {
			t.Errorf("volume %q has the mode %v; a pod starts without it: %v", v.Name, s.DefaultMode, s.Optional)
		}
	}
	mounts := o.container().VolumeMounts
	for i, m := range mounts {
		if !volumes[m.Name] {
			t.Errorf("mount %q has no volume, or another has it", m.Name)
		}
		delete(volumes, m.Name)
		if !path.IsAbs(m.MountPath) || strings.Contains(m.MountPath, ":") || m.SubPath != "" {
			t.Errorf("mount %q at %q with the subPath %q", m.Name, m.MountPath, m.SubPath)
		}
		for _, other := range mounts[:i] {
			if strings.HasPrefix(m.MountPath+"/", other.MountPath+"/") || strings.HasPrefix(other.MountPath+"/", m.MountPath+"/") {
				t.Errorf("the mounts at %s and %s cover each other", m.MountPath, other.MountPath)
			}
		}
		if mode := m.MountPropagation; mode != nil && *mode == corev1.MountPropagationBidirectional {
			t.Errorf("mount %q propagates to the host", m.Name)
		}
	}
	for name := range volumes {
		t.Errorf("volume %q is not mounted", name)
	}
}

func checkSecurity(t *testing.T, o *chartObjects) {
	t.Helper()
	s := o.container().SecurityContext
	if s == nil {
		t.Fatal("no securityContext")
	}
	privileged := s.Privileged != nil && *s.Privileged
	switch {
	case privileged && s.Capabilities != nil:
		t.Error("privileged, and a list of capabilities that does nothing")
	case !privileged && s.Capabilities == nil:
		t.Error("neither privileged nor a list of capabilities")
	case !privileged:
		if s.SELinuxOptions == nil || s.SELinuxOptions.Type != "spc_t" || s.AppArmorProfile == nil || s.AppArmorProfile.Type != corev1.AppArmorProfileTypeUnconfined {
			t.Error("the default profiles of SELinux or AppArmor forbid to look at others' namespaces")
		}
		for _, c := range slices.Concat(s.Capabilities.Add, s.Capabilities.Drop) {
			if strings.HasPrefix(string(c), "CAP_") {
				t.Errorf("the capability %s: the API has it without CAP_", c)
			}
		}
	}
	// The API server refuses the combination for CAP_SYS_ADMIN and for privileged.
	if s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation {
		t.Error("allowPrivilegeEscalation: false")
	}
	if s.RunAsUser == nil || *s.RunAsUser != 0 || s.RunAsNonRoot != nil && *s.RunAsNonRoot {
		t.Error("it does not run as root")
	}
	if s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
		t.Error("its root is writable")
	}
	// Variables of Services would look like settings.
	if links := o.pod().EnableServiceLinks; links == nil || *links {
		t.Error("Services of the namespace set variables")
	}
	// What it can write on the node is its own.
	for _, m := range o.container().VolumeMounts {
		if !m.ReadOnly && m.MountPath != state.DefaultDir && m.MountPath != path.Dir(api.DefaultSocket) {
			t.Errorf("the mount at %s is writable", m.MountPath)
		}
	}
}

// checkPaths checks that the paths in the flags are mounted and have the right type.
func checkPaths(t *testing.T, o *chartObjects) {
	t.Helper()
	for _, p := range []string{"/run/netns", state.DefaultDir, path.Dir(api.DefaultSocket)} {
		if m, _, err := o.mount(p); err != nil || m.MountPath != p {
			t.Errorf("%s is not mounted: %v", p, err)
		}
	}
	// The runtime's is not: it is below the root of process 1.
	if !o.pod().HostPID {
		t.Error("process 1 is not the node's")
	}
	if p, given := o.setting("--config"); given != (o.config != nil) {
		t.Errorf("--config=%s, and a ConfigMap: %t", p, o.config != nil)
	} else if given {
		_, v, err := o.mount(p)
		if err != nil || v.ConfigMap == nil || v.ConfigMap.Name != o.config.Name || o.config.Data[path.Base(p)] == "" {
			t.Errorf("%s is not of the ConfigMap %s with %v: %v", p, o.config.Name, o.config.Data, err)
		}
	}
	p, given := o.setting("--gossip-key-file")
	_, v, err := o.mount(p)
	if !given || err != nil || v.Secret == nil || len(v.Secret.Items) != 1 || v.Secret.Items[0].Path != path.Base(p) {
		t.Errorf("--gossip-key-file=%s is not of a Secret: %v", p, err)
	}
}
