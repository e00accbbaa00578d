package kubelet

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Manifest is the path of what is deployed, from a package right below tests.
const Manifest = "../../deploy/dupip.yaml"

// manifest is a DaemonSet and what belongs to it.
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
	for document := range strings.SplitSeq("\n"+string(data), "\n---\n") {
		if strings.TrimSpace(document) == "" {
			continue
		}
		if err := m.add([]byte(document)); err != nil {
			return nil, fmt.Errorf("read manifest %s: %w", path, err)
		}
	}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("read manifest %s: %w", path, err)
	}
	return m, nil
}

func (m *manifest) add(document []byte) error {
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(document, &kind); err != nil {
		return err
	}
	switch kind.APIVersion + " " + kind.Kind {
	case "v1 ServiceAccount":
		return yaml.UnmarshalStrict(document, &m.account)
	case "v1 ConfigMap":
		m.configs = append(m.configs, corev1.ConfigMap{})
		return yaml.UnmarshalStrict(document, &m.configs[len(m.configs)-1])
	case "v1 Service":
		return yaml.UnmarshalStrict(document, &m.service)
	case "apps/v1 DaemonSet":
		return yaml.UnmarshalStrict(document, &m.set)
	}
	return fmt.Errorf("a %s %s is not understood", kind.APIVersion, kind.Kind)
}

// check looks for what an API server would refuse, or would leave without pods, and for
// what is beyond the cluster that is played here.
func (m *manifest) check() error {
	set := m.set.DeepCopy()
	labels := set.Spec.Template.Labels
	if s := set.Spec.Selector; s == nil || !selects(s.MatchLabels, labels) || len(s.MatchExpressions) > 0 {
		return fmt.Errorf("the selector of the DaemonSet does not match its pods, which have %v", labels)
	}
	account := take(&set.Spec.Template.Spec.ServiceAccountName)
	if account != m.account.Name || m.account.Namespace != set.Namespace {
		return fmt.Errorf("the pods are of the ServiceAccount %q, the manifest has %s/%s", account, m.account.Namespace, m.account.Name)
	}
	if m.service.Namespace != set.Namespace || !selects(m.service.Spec.Selector, labels) {
		return fmt.Errorf("the Service %q does not select the pods", m.service.Name)
	}
	if m.service.Spec.ClusterIP != corev1.ClusterIPNone || !m.service.Spec.PublishNotReadyAddresses {
		return errors.New("the Service is understood only when it is headless and names pods that are not ready")
	}
	// How it is rolled out is the controller's business.
	take(&set.TypeMeta)
	take(&set.Name)
	take(&set.Namespace)
	take(&set.Labels)
	take(&set.Spec.Selector)
	take(&set.Spec.UpdateStrategy)
	take(&set.Spec.Template)
	return nothingLeft("the DaemonSet", *set)
}

func selects(selector, labels map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return len(selector) > 0
}

// take returns a field and empties it. What nobody took of a document was not understood.
func take[T any](field *T) T {
	value := *field
	*field = *new(T)
	return value
}

// nothingLeft is an error if there is something in a document that was not taken.
func nothingLeft(what string, document any) error {
	if reflect.ValueOf(document).IsZero() {
		return nil
	}
	rest, err := json.Marshal(document)
	if err != nil {
		return err
	}
	return fmt.Errorf("of %s this is not understood: %s", what, rest)
}
