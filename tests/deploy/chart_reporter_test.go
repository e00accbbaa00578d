package deploy_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// reporterObjects are those of reporter.enabled.
type reporterObjects struct {
	set            *appsv1.StatefulSet
	budget         *policyv1.PodDisruptionBudget
	lease          *coordinationv1.Lease
	acks           *corev1.ConfigMap
	account        *corev1.ServiceAccount
	clusterRole    *rbacv1.ClusterRole
	clusterBinding *rbacv1.ClusterRoleBinding
	role           *rbacv1.Role
	binding        *rbacv1.RoleBinding
	monitor        *monitoringv1.PodMonitor
}

func (o *reporterObjects) all() []metav1.Object {
	if o.set == nil {
		return nil
	}
	all := []metav1.Object{o.set, o.account, o.clusterRole, o.clusterBinding, o.role, o.binding, o.lease, o.acks}
	if o.monitor != nil {
		all = append(all, o.monitor)
	}
	if o.budget != nil {
		all = append(all, o.budget)
	}
	return all
}

// clusterWide reports whether an object is in no namespace.
func (o *reporterObjects) clusterWide(object metav1.Object) bool {
	return o.set != nil && (object == o.clusterRole || object == o.clusterBinding)
}

// bookResources are what each book is read from, by API group, as deploy/README.md has it.
var bookResources = map[string]map[string][]string{
	"kubernetes": {"": {"pods", "nodes"}},
	"calico":     {"crd.projectcalico.org": {"ipamblocks", "ippools"}, "projectcalico.org": {"ipamblocks", "ippools"}},

	"whereabouts": {"whereabouts.cni.cncf.io": {"ippools", "overlappingrangeipreservations"}},
	"cilium":      {"cilium.io": {"ciliumnodes"}},
	"azure":       {"acn.azure.com": {"nodenetworkconfigs"}},
}

// bookRules are the rights for these books, which only read.
func bookRules(t *testing.T, setting string) (rules []rbacv1.PolicyRule) {
	names := slices.Sorted(maps.Keys(bookResources))
	switch setting {
	case "off":
		return nil
	case "auto":
	default:
		names = slices.Compact(append([]string{"kubernetes"}, strings.Split(setting, ",")...))
	}
	for _, name := range names {
		if bookResources[name] == nil {
			t.Errorf("there is no book %s", name)
		}
		for _, group := range slices.Sorted(maps.Keys(bookResources[name])) {
			rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{group}, Resources: bookResources[name][group], Verbs: []string{"get", "list", "watch"}})
		}
	}
	return rules
}

// withBooks is checkReporter for a setting of the books.
func withBooks(setting string) func(*testing.T, *chartObjects) {
	return func(t *testing.T, all *chartObjects) {
		checkReporter(t, all)
		if args := all.reporter.set.Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--books="+setting) {
			t.Errorf("the arguments are %q", args)
		}
	}
}

// checkReporter: a pod without rights on the node, and an account with the rights that SECURITY.md names.
func checkReporter(t *testing.T, all *chartObjects) {
	o := all.reporter
	pod, template := o.set.Spec.Template.Spec, o.set.Spec.Template
	c, s := pod.Containers[0], pod.SecurityContext
	if pod.HostNetwork || pod.HostPID || pod.HostIPC || len(pod.Containers) != 1 || *o.set.Spec.Replicas != 2 || *pod.EnableServiceLinks {
		t.Errorf("the pod is %+v", pod)
	}
	if !*s.RunAsNonRoot || *s.RunAsUser == 0 || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("the pod may %+v", s)
	}
	own := c.SecurityContext
	if !*own.ReadOnlyRootFilesystem || *own.AllowPrivilegeEscalation || own.Privileged != nil || len(own.Capabilities.Add) > 0 ||
		!slices.Equal(own.Capabilities.Drop, []corev1.Capability{"ALL"}) {
		t.Errorf("the container may %+v", own)
	}
	// Nothing but the key, which its group reads, and the agents' configuration.
	wantVolumes := 1
	if all.config != nil {
		wantVolumes++
		if !slices.Contains(c.Args, "--config="+c.VolumeMounts[0].MountPath+"/dupip.yaml") || pod.Volumes[0].ConfigMap.Name != all.config.Name || len(template.Annotations) != 1 {
			t.Errorf("its configuration is %+v for %q, with %v", pod.Volumes[0], c.Args, template.Annotations)
		}
	}
	if len(pod.Volumes) != wantVolumes || len(c.VolumeMounts) != wantVolumes {
		t.Errorf("the volumes are %+v", pod.Volumes)
	}
	for _, v := range pod.Volumes {
		if v.ConfigMap != nil {
			continue
		}
		if v.Secret == nil || *v.Secret.DefaultMode != 0o440 || *s.FSGroup != *s.RunAsGroup || v.Secret.Items[0].Path != "gossip.key" {
			t.Errorf("the key is %+v for %+v", v.Secret, s)
		}
	}

	// The Service finds agents, and no reporters; the StatefulSet finds its own pods.
	for key, value := range o.set.Spec.Selector.MatchLabels {
		if template.Labels[key] != value {
			t.Errorf("%s=%s is none of %v", key, value, template.Labels)
		}
	}
	if m := o.monitor; m != nil {
		equal(t, "selector of the PodMonitor", m.Spec.Selector.MatchLabels, o.set.Spec.Selector.MatchLabels)
		if endpoint := m.Spec.PodMetricsEndpoints[0]; *endpoint.Port != "metrics" || *endpoint.RelabelConfigs[0].Replacement == *all.monitor.Spec.PodMetricsEndpoints[0].RelabelConfigs[0].Replacement {
			t.Errorf("the PodMonitor has %+v, the job of the agents", endpoint)
		}
	}
	checkLabels(t, template.Labels)
	if name := template.Labels["app.kubernetes.io/name"]; name == all.service.Spec.Selector["app.kubernetes.io/name"] {
		t.Errorf("the Service selects the reporter, %s", name)
	}
	// cmd/kubectl-dupip finds these pods, and no others.
	const component = "dupip.io/component"
	if template.Labels[component] != "reporter" || all.daemons.Spec.Template.Labels[component] != "" {
		t.Errorf("the labels are %v, and those of agents %v", template.Labels, all.daemons.Spec.Template.Labels)
	}
	if !slices.Contains(c.Args, "--join="+all.service.Name+"."+all.service.Namespace) {
		t.Errorf("it joins by %q", c.Args)
	}
	// Kubernetes replaces $(B), but not $$(B).
	if value, given := all.setting("--cluster"); given && !slices.Contains(c.Args, "--cluster="+strings.ReplaceAll(value, "$(", "$$(")) {
		t.Errorf("%q has not the agents' cluster %q", c.Args, value)
	}

	i := slices.IndexFunc(c.Args, func(arg string) bool { return strings.HasPrefix(arg, "--books=") })
	equal(t, "cluster role", o.clusterRole.Rules, append([]rbacv1.PolicyRule{
		{APIGroups: []string{"events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch", "list"}},
	}, bookRules(t, strings.TrimPrefix(c.Args[i], "--books="))...))
	equal(t, "role", o.role.Rules, []rbacv1.PolicyRule{
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{o.lease.Name}, Verbs: []string{"get", "update"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{o.acks.Name}, Verbs: []string{"get"}},
	})
	if !slices.Contains(c.Args, "--acknowledgements="+o.acks.Name) || o.acks.Labels[component] != "acknowledgements" || len(o.acks.Data) > 0 {
		t.Errorf("%q, and the acknowledgements are in %+v", c.Args, o.acks)
	}
	if !slices.Contains(c.Args, "--lease="+o.lease.Name) {
		t.Errorf("%q does not name the Lease %s", c.Args, o.lease.Name)
	}
	account := []rbacv1.Subject{{Kind: "ServiceAccount", Name: o.account.Name, Namespace: o.account.Namespace}}
	equal(t, "subjects", o.clusterBinding.Subjects, account)
	equal(t, "subjects", o.binding.Subjects, account)
	if o.clusterBinding.RoleRef.Name != o.clusterRole.Name || o.binding.RoleRef.Name != o.role.Name || pod.ServiceAccountName != o.account.Name ||
		*o.account.AutomountServiceAccountToken || !*pod.AutomountServiceAccountToken {
		t.Errorf("%+v, %+v, %s", o.clusterBinding, o.binding, pod.ServiceAccountName)
	}
	for _, object := range o.all() {
		if wrong := validation.IsDNS1123Subdomain(object.GetName()); wrong != nil {
			t.Errorf("%s: %v", object.GetName(), wrong)
		}
	}
}
