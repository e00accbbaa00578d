package kubelet

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Manifest is the path of what is deployed, from a package right below tests.
const Manifest = "../../deploy/dupip.yaml"

// knownFields are the fields of a DaemonSet that this package understands or that concern only its
// rollout. One that ends with a dot has any fields below it.
var knownFields = strings.Fields(`
	apiVersion kind metadata. spec.selector.matchLabels. spec.updateStrategy. spec.revisionHistoryLimit spec.template.metadata.labels.`)

// knownPodFields are those of the pod's specification.
var knownPodFields = strings.Fields(`
	automountServiceAccountToken dnsPolicy enableServiceLinks hostNetwork hostPID nodeName nodeSelector. priorityClassName
	serviceAccountName terminationGracePeriodSeconds tolerations.
	containers.name containers.image containers.imagePullPolicy containers.terminationMessagePolicy containers.command containers.args containers.workingDir
	containers.env.name containers.env.value containers.env.valueFrom.fieldRef.fieldPath
	containers.ports.name containers.ports.containerPort
	containers.startupProbe.httpGet.host containers.startupProbe.httpGet.path containers.startupProbe.httpGet.port containers.startupProbe.failureThreshold
	containers.startupProbe.periodSeconds containers.startupProbe.timeoutSeconds
	containers.livenessProbe.httpGet.host containers.livenessProbe.httpGet.path containers.livenessProbe.httpGet.port
	containers.livenessProbe.periodSeconds containers.livenessProbe.timeoutSeconds
	containers.readinessProbe.httpGet.host containers.readinessProbe.httpGet.path containers.readinessProbe.httpGet.port containers.readinessProbe.timeoutSeconds
	containers.resources containers.resources.limits.cpu containers.resources.limits.memory
	containers.resources.requests.cpu containers.resources.requests.memory
	containers.securityContext.privileged containers.securityContext.readOnlyRootFilesystem
	containers.securityContext.allowPrivilegeEscalation containers.securityContext.runAsUser containers.securityContext.runAsGroup
	containers.securityContext.capabilities.add containers.securityContext.capabilities.drop
	containers.securityContext.seccompProfile.type containers.securityContext.appArmorProfile.type
	containers.securityContext.seLinuxOptions.
	containers.volumeMounts.name containers.volumeMounts.mountPath containers.volumeMounts.readOnly
	containers.volumeMounts.mountPropagation
	volumes.name volumes.hostPath.path volumes.hostPath.type
	volumes.configMap.name volumes.configMap.defaultMode volumes.configMap.optional volumes.configMap.items.key volumes.configMap.items.path
	volumes.secret.secretName volumes.secret.defaultMode volumes.secret.optional volumes.secret.items.key volumes.secret.items.path`)

// manifest is a DaemonSet with its ConfigMaps, ServiceAccount and Service.
type manifest struct {
	configs []corev1.ConfigMap
	account corev1.ServiceAccount
	service corev1.Service
	set     appsv1.DaemonSet
}

// readManifest decodes a stream of YAML documents. Unknown kinds and fields are errors.
func readManifest(path string) (*manifest, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	m := &manifest{}
	var errs []error
	for doc := range strings.SplitSeq("\n"+string(data), "\n---\n") {
		if strings.TrimSpace(doc) != "" {
			errs = append(errs, m.add([]byte(doc)))
		}
	}
	if err := errors.Join(append(errs, m.check())...); err != nil {
		return nil, fmt.Errorf("read manifest %s: %w", path, err)
	}
	return m, nil
}

func (m *manifest) add(doc []byte) error {
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(doc, &kind); err != nil {
		return err
	}
	switch kind.APIVersion + " " + kind.Kind {
	case "v1 ServiceAccount":
		return yaml.UnmarshalStrict(doc, &m.account)
	case "v1 ConfigMap":
		m.configs = append(m.configs, corev1.ConfigMap{})
		return yaml.UnmarshalStrict(doc, &m.configs[len(m.configs)-1])
	case "v1 Service":
		return yaml.UnmarshalStrict(doc, &m.service)
	case "apps/v1 DaemonSet":
		known := slices.Clone(knownFields)
		for _, field := range knownPodFields {
			known = append(known, "spec.template.spec."+field)
		}
		return errors.Join(yaml.UnmarshalStrict(doc, &m.set), checkFields(doc, known))
	}
	return fmt.Errorf("a %s %s is not understood", kind.APIVersion, kind.Kind)
}

// check returns an error for what an API server would reject or leave without pods, and for what
// this package does not support.
func (m *manifest) check() error {
	pods := m.set.Spec.Template
	if s := m.set.Spec.Selector; s == nil || !selects(s.MatchLabels, pods.Labels) {
		return fmt.Errorf("the selector of the DaemonSet does not match its pods, which have %v", pods.Labels)
	}
	if account := pods.Spec.ServiceAccountName; account != m.account.Name || m.account.Namespace != m.set.Namespace {
		return fmt.Errorf("the pods are of the ServiceAccount %q, the manifest has %s/%s", account, m.account.Namespace, m.account.Name)
	}
	if m.service.Namespace != m.set.Namespace || !selects(m.service.Spec.Selector, pods.Labels) {
		return fmt.Errorf("the Service %q does not select the pods", m.service.Name)
	}
	if m.service.Spec.ClusterIP != corev1.ClusterIPNone || !m.service.Spec.PublishNotReadyAddresses {
		return errors.New("the Service is understood only when it is headless and names pods that are not ready")
	}
	return nil
}

func selects(selector, labels map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return len(selector) > 0
}

// checkPod names the fields of a pod's specification that are not understood.
func checkPod(spec *corev1.PodSpec) error {
	doc, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	return checkFields(doc, knownPodFields)
}

// checkFields names the fields of a document, with their values, that are not among the known ones.
func checkFields(doc []byte, known []string) error {
	var content any
	if err := yaml.Unmarshal(doc, &content); err != nil {
		return err
	}
	var errs []error
	for field, value := range leaves("", content) {
		if !slices.ContainsFunc(known, func(k string) bool {
			return field == k || strings.HasSuffix(k, ".") && strings.HasPrefix(field+".", k)
		}) {
			errs = append(errs, fmt.Errorf("%s: %v is not understood", field, value))
		}
	}
	return errors.Join(errs...)
}

// leaves are the scalars and empty values of a document, by their path without list indices.
func leaves(path string, content any) map[string]any {
	all := make(map[string]any)
	switch c := content.(type) {
	case map[string]any:
		for key, value := range c {
			maps.Copy(all, leaves(strings.TrimPrefix(path+"."+key, "."), value))
		}
	case []any:
		for _, value := range c {
			maps.Copy(all, leaves(path, value))
		}
	}
	if len(all) == 0 {
		all[path] = content
	}
	return all
}
