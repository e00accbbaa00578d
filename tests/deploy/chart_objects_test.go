package deploy_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	yamlstream "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/dupip/dupip/internal/testneeds"
	"github.com/dupip/dupip/tests/helm"
)

const chartDir = "../../deploy/chart"

// chartObjects are all that the chart may ever render: no right and no account's token, but for the reporter. There is a
// secret only where Helm reads a cluster.
type chartObjects struct {
	docs    [][]byte // as they were rendered
	secret  *corev1.Secret
	account *corev1.ServiceAccount
	service *corev1.Service
	config  *corev1.ConfigMap
	daemons *appsv1.DaemonSet
	drill   *batchv1.Job
	monitor *monitoringv1.PodMonitor
	rule    *monitoringv1.PrometheusRule
	// dashboard is the ConfigMap for Grafana.
	dashboard *corev1.ConfigMap
	reporter  reporterObjects
}

// all are those that were rendered.
func (o *chartObjects) all() (objects []metav1.Object) {
	for object, there := range map[metav1.Object]bool{
		o.secret: o.secret != nil, o.account: o.account != nil, o.service: o.service != nil, o.config: o.config != nil, o.daemons: o.daemons != nil,
		o.monitor: o.monitor != nil, o.rule: o.rule != nil, o.dashboard: o.dashboard != nil, o.drill: o.drill != nil,
	} {
		if there {
			objects = append(objects, object)
		}
	}
	return append(objects, o.reporter.all()...)
}

// renderChart renders the chart with the values of testdata/key.yaml, which other values override.
func renderChart(t *testing.T, release, namespace, values string) (*chartObjects, error) {
	t.Helper()
	testneeds.Slow(t)
	seen()
	text, err := helm.Run(t.Context(), values, "template", release, chartDir, "--namespace", namespace, "--values", "testdata/key.yaml", "--values", "-")
	if err != nil {
		return nil, err
	}
	return decodeChart(text)
}

// seen opens all files of the chart: go test uses a cached result if no file has changed that this
// process opened, and helm reads them in another process.
var seen = sync.OnceFunc(func() {
	_ = filepath.WalkDir(chartDir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			_, err = os.ReadFile(path)
		}
		return err
	})
})

// decodeChart reads a stream of YAML documents strictly.
func decodeChart(text string) (*chartObjects, error) {
	o := &chartObjects{}
	stream := yamlstream.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	for {
		doc, err := stream.Read()
		if errors.Is(err, io.EOF) {
			return o, nil
		}
		if err != nil {
			return nil, err
		}
		o.docs = append(o.docs, doc)
		if err := o.add(doc); err != nil {
			return nil, fmt.Errorf("%w in\n%s", err, doc)
		}
	}
}

func (o *chartObjects) add(doc []byte) error {
	var kind metav1.PartialObjectMetadata
	if err := yaml.Unmarshal(doc, &kind); err != nil {
		return err
	}
	switch kind.APIVersion + " " + kind.Kind {
	case "apps/v1 StatefulSet":
		return strictly(doc, &o.reporter.set)
	case "rbac.authorization.k8s.io/v1 ClusterRole":
		return strictly(doc, &o.reporter.clusterRole)
	case "rbac.authorization.k8s.io/v1 ClusterRoleBinding":
		return strictly(doc, &o.reporter.clusterBinding)
	case "rbac.authorization.k8s.io/v1 Role":
		return strictly(doc, &o.reporter.role)
	case "rbac.authorization.k8s.io/v1 RoleBinding":
		return strictly(doc, &o.reporter.binding)
	case "coordination.k8s.io/v1 Lease":
		return strictly(doc, &o.reporter.lease)
	case "policy/v1 PodDisruptionBudget":
		return strictly(doc, &o.reporter.budget)
	case "v1 ServiceAccount":
		if strings.HasSuffix(kind.Name, "-reporter") {
			return strictly(doc, &o.reporter.account)
		}
		return strictly(doc, &o.account)
	case "v1 Secret":
		return strictly(doc, &o.secret)
	case "v1 Service":
		return strictly(doc, &o.service)
	case "v1 ConfigMap":
		if strings.HasSuffix(kind.Name, "-dashboard") {
			return strictly(doc, &o.dashboard)
		}
		if strings.HasSuffix(kind.Name, "-acks") {
			return strictly(doc, &o.reporter.acks)
		}
		return strictly(doc, &o.config)
	case "apps/v1 DaemonSet":
		return strictly(doc, &o.daemons)
	case "batch/v1 Job":
		return strictly(doc, &o.drill)
	case "monitoring.coreos.com/v1 PodMonitor":
		if strings.HasSuffix(kind.Name, "-reporter") {
			return strictly(doc, &o.reporter.monitor)
		}
		return strictly(doc, &o.monitor)
	case "monitoring.coreos.com/v1 PrometheusRule":
		return strictly(doc, &o.rule)
	}
	return fmt.Errorf("a %q of %q", kind.Kind, kind.APIVersion)
}

// strictly decodes the one object of its kind, as the API server does: unknown fields,
// fields in other letters, fields that are given twice and second objects are errors.
func strictly[T any](doc []byte, to **T) error {
	if *to != nil {
		return fmt.Errorf("a second %T", **to)
	}
	*to = new(T)
	data, err := yaml.YAMLToJSONStrict(doc)
	if err != nil {
		return err
	}
	unknown, err := json.UnmarshalStrict(data, *to)
	return errors.Join(append(unknown, err)...)
}

// pod is what the DaemonSet makes.
func (o *chartObjects) pod() *corev1.PodSpec { return &o.daemons.Spec.Template.Spec }

// container is the pod's only one.
func (o *chartObjects) container() *corev1.Container { return &o.pod().Containers[0] }

// setting is the value of a flag of the agent, which the chart gives as a variable.
func (o *chartObjects) setting(flag string) (value string, given bool) {
	for _, e := range o.container().Env {
		if e.Name == variable(flag) {
			return e.Value, true
		}
	}
	return "", false
}

func variable(flag string) string {
	return "DUPIP_" + strings.ToUpper(strings.ReplaceAll(strings.TrimPrefix(flag, "--"), "-", "_"))
}

// mount is what is mounted at a path of the container, or above it.
func (o *chartObjects) mount(path string) (corev1.VolumeMount, corev1.Volume, error) {
	for _, m := range o.container().VolumeMounts {
		if m.MountPath != path && !strings.HasPrefix(path, m.MountPath+"/") {
			continue
		}
		for _, v := range o.pod().Volumes {
			if v.Name == m.Name {
				return m, v, nil
			}
		}
		return m, corev1.Volume{}, fmt.Errorf("mount %s has no volume", m.Name)
	}
	return corev1.VolumeMount{}, corev1.Volume{}, fmt.Errorf("nothing is mounted at %s", path)
}
