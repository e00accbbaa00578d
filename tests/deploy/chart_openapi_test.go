package deploy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/dupip/dupip/internal/testneeds"
)

// openAPI is what one version of Kubernetes takes, by the specification that is published with its source. It may be used concurrently.
type openAPI struct {
	version string
	mu      sync.Mutex
	kinds   map[string]map[string]*jsonschema.Schema // by apiVersion
}

// The versions that the chart is for: the oldest, and the newest that there is.
var oldest, newest = &openAPI{version: "v1.30.14"}, &openAPI{version: "v1.37.2"}

// check returns an error if an object has a field that this version does not know, lacks one that it wants, or has one of another type.
func (a *openAPI) check(doc []byte) error {
	var of metav1.TypeMeta
	if err := yaml.Unmarshal(doc, &of); err != nil {
		return err
	}
	kinds, err := a.kindsOf(of.APIVersion)
	if err != nil {
		return err
	}
	if kinds[of.Kind] == nil {
		return fmt.Errorf("%s of Kubernetes %s has no %q", of.APIVersion, a.version, of.Kind)
	}
	data, err := yaml.YAMLToJSONStrict(doc)
	if err != nil {
		return err
	}
	object, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return err
	}
	if err := kinds[of.Kind].Validate(object); err != nil {
		return fmt.Errorf("%s of Kubernetes %s: %w", of.Kind, a.version, err)
	}
	return nil
}

func (a *openAPI) kindsOf(apiVersion string) (map[string]*jsonschema.Schema, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if kinds := a.kinds[apiVersion]; kinds != nil {
		return kinds, nil
	}
	folder, err := kubernetesSource(a.version)
	if err != nil {
		return nil, err
	}
	name := strings.ReplaceAll("apis/"+apiVersion, "/", "__")
	if apiVersion == "v1" {
		name = "api__v1"
	}
	data, err := os.ReadFile(filepath.Join(folder, "api/openapi-spec/v3", name+"_openapi.json"))
	if err != nil {
		return nil, err
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource(name, document); err != nil {
		return nil, err
	}
	schemas := document.(map[string]any)["components"].(map[string]any)["schemas"].(map[string]any)
	for _, schema := range schemas {
		// A server that is asked to be strict, as it is by kubectl and by Helm 4, takes no others.
		if schema := schema.(map[string]any); schema["properties"] != nil {
			schema["additionalProperties"] = false
		}
	}
	kinds := make(map[string]*jsonschema.Schema)
	for id, schema := range schemas {
		names, _ := schema.(map[string]any)["x-kubernetes-group-version-kind"].([]any)
		if len(names) != 1 { // such as DeleteOptions, which is in all groups
			continue
		}
		kind := names[0].(map[string]any)["kind"].(string)
		if kinds[kind], err = compiler.Compile(name + "#/components/schemas/" + id); err != nil {
			return nil, err
		}
	}
	if a.kinds == nil {
		a.kinds = make(map[string]map[string]*jsonschema.Schema)
	}
	a.kinds[apiVersion] = kinds
	return kinds, nil
}

// kubernetesSource downloads the source of a version of Kubernetes, unless it is there.
func kubernetesSource(version string) (folder string, err error) {
	cmd := exec.Command("go", "mod", "download", "-json", "k8s.io/kubernetes@"+version)
	cmd.Dir = os.TempDir() // outside of this module: its versions are not Kubernetes'
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", cmd, err, out)
	}
	var module struct{ Dir string }
	err = json.Unmarshal(out, &module)
	return module.Dir, err
}

// checkOpenAPI checks all objects of a rendering but those of the Prometheus operator, which have been decoded strictly.
func checkOpenAPI(t *testing.T, o *chartObjects) {
	t.Helper()
	for _, doc := range o.docs {
		if bytes.Contains(doc, []byte("\napiVersion: monitoring.coreos.com/")) {
			continue
		}
		for _, kubernetes := range []*openAPI{oldest, newest} {
			if err := kubernetes.check(doc); err != nil {
				t.Errorf("%v in\n%s", err, doc)
			}
		}
	}
}

// What no server takes is found, and what only a newer one does.
func TestOpenAPI(t *testing.T) {
	testneeds.Slow(t) // downloads
	t.Parallel()
	minor := strings.TrimPrefix(strings.TrimSuffix(oldest.version, path.Ext(oldest.version)), "v")
	if chart := readChartFile(t, chartDir+"/Chart.yaml"); !strings.Contains(chart, `kubeVersion: ">=`+minor+`.0-0"`) {
		t.Errorf("%s is not the oldest version that the chart is for:\n%s", minor, chart)
	}
	const pod = "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: a, image: b}]"
	for doc, wants := range map[string]struct{ oldest, newest string }{
		pod + "}":                                    {},
		pod + ", hostnameOverride: c}":               {oldest: "'hostnameOverride' not allowed"}, // since 1.34
		pod + ", hostnetwork: true}":                 {oldest: "'hostnetwork' not allowed", newest: "'hostnetwork' not allowed"},
		pod + `, priority: "1"}`:                     {oldest: "got string, want integer", newest: "got string, want integer"},
		"apiVersion: v1\nkind: Pod\nspec: {}":        {oldest: "missing property 'containers'", newest: "missing property 'containers'"},
		"apiVersion: v1\nkind: Daemon":               {oldest: `no "Daemon"`, newest: `no "Daemon"`},
		"apiVersion: apps/v2\nkind: DaemonSet":       {oldest: "no such file", newest: "no such file"},
		"apiVersion: apps/v1\nkind: DaemonSet\na: 1": {oldest: "'a' not allowed", newest: "'a' not allowed"},
	} {
		for kubernetes, want := range map[*openAPI]string{oldest: wants.oldest, newest: wants.newest} {
			if err := kubernetes.check([]byte(doc)); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q in\n%s", kubernetes.version, err, want, doc)
			}
		}
	}
}
