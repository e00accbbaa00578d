package deploy_test

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
)

// apiServer is as much of an API server as Helm needs to install and upgrade the chart: discovery, and
// objects that it stores as they come. It merges patches into Secrets only: those of Helm 3 for other
// objects have lists, which only a real one merges.
type apiServer struct {
	*httptest.Server
	mu      sync.Mutex
	objects map[string]map[string]any // by path
}

// kinds are those that it knows, by the path and the name of their resource.
var kinds = map[string]map[string]string{
	"/api/v1": {
		"namespaces": "Namespace", "secrets": "Secret", "configmaps": "ConfigMap", "services": "Service", "serviceaccounts": "ServiceAccount",
	},
	"/apis/apps/v1": {"daemonsets": "DaemonSet"},
}

// newAPIServer starts one that has kube-system and other namespaces.
func newAPIServer(t *testing.T, namespaces ...string) *apiServer {
	t.Helper()
	s := &apiServer{objects: make(map[string]map[string]any)}
	for _, name := range append(namespaces, "kube-system") {
		s.objects["/api/v1/namespaces/"+name] = map[string]any{
			"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name},
		}
	}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// ServeHTTP implements [http.Handler].
func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := discovery(r.URL.Path)
	if answer == nil {
		answer = s.serve(r)
	}
	w.Header().Set("Content-Type", "application/json")
	if status, failed := answer.(metav1.Status); failed {
		w.WriteHeader(int(status.Code))
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// discovery returns what there is at a path that is not of objects, nil otherwise.
func discovery(path string) any {
	switch path {
	case "/version":
		return version.Info{Major: "1", Minor: "30", GitVersion: "v1.30.0"}
	case "/api":
		return metav1.APIVersions{Versions: []string{"v1"}}
	case "/apis":
		apps := metav1.GroupVersionForDiscovery{GroupVersion: "apps/v1", Version: "v1"}
		return metav1.APIGroupList{Groups: []metav1.APIGroup{
			{Name: "apps", Versions: []metav1.GroupVersionForDiscovery{apps}, PreferredVersion: apps},
		}}
	}
	if kinds[path] == nil {
		return nil
	}
	list := metav1.APIResourceList{GroupVersion: strings.TrimPrefix(strings.TrimPrefix(path, "/apis/"), "/api/")}
	for name, kind := range kinds[path] {
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: name, Kind: kind, Namespaced: name != "namespaces", Verbs: metav1.Verbs{"create", "delete", "get", "list", "patch", "update"},
		})
	}
	return list
}

// serve returns objects, and changes them.
func (s *apiServer) serve(r *http.Request) any {
	body, err := content(r)
	if err != nil {
		return refusal(http.StatusBadRequest, metav1.StatusReasonBadRequest)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	path := r.URL.Path
	present := s.objects[path]
	switch {
	case r.Method == http.MethodPost:
		path += "/" + (&unstructured.Unstructured{Object: body}).GetName()
		if s.objects[path] != nil {
			return refusal(http.StatusConflict, metav1.StatusReasonAlreadyExists)
		}
		s.objects[path] = body
	case r.Header.Get("Content-Type") == "application/apply-patch+yaml":
		s.objects[path] = merged(present, body)
	case r.Method == http.MethodGet && r.URL.Query().Has("labelSelector"):
		return s.list(path, r.URL.Query().Get("labelSelector"))
	case present == nil:
		return refusal(http.StatusNotFound, metav1.StatusReasonNotFound)
	case r.Method == http.MethodPut:
		s.objects[path] = body
	case r.Method == http.MethodPatch && present["kind"] == "Secret":
		s.objects[path] = merged(present, body)
	case r.Method == http.MethodDelete:
		delete(s.objects, path)
		return present
	}
	return s.objects[path]
}

// content reads an object or a patch: JSON, or a Secret in protobuf, as which Helm sends its releases.
func content(r *http.Request) (object map[string]any, err error) {
	data, err := io.ReadAll(r.Body)
	if err != nil || len(data) == 0 || r.Method == http.MethodDelete {
		return nil, err
	}
	if encoded, ok := bytes.CutPrefix(data, []byte("k8s\x00")); ok {
		var envelope runtime.Unknown
		if err := envelope.Unmarshal(encoded); err != nil {
			return nil, err
		}
		secret := corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: envelope.APIVersion, Kind: envelope.Kind}}
		if err := secret.Unmarshal(envelope.Raw); err != nil {
			return nil, err
		}
		if data, err = json.Marshal(secret); err != nil {
			return nil, err
		}
	}
	err = json.Unmarshal(data, &object)
	return object, err
}

// merged applies a merge patch (RFC 7386).
func merged(object, patch map[string]any) map[string]any {
	object = maps.Clone(object)
	if object == nil {
		object = make(map[string]any)
	}
	for key, value := range patch {
		inner, _ := object[key].(map[string]any)
		switch value := value.(type) {
		case nil:
			delete(object, key)
		case map[string]any:
			object[key] = merged(inner, value)
		default:
			object[key] = value
		}
	}
	return object
}

// list returns the Secrets below a path that have some labels: Helm lists its releases only.
func (s *apiServer) list(path, selector string) any {
	selected, err := labels.Parse(selector)
	if err != nil {
		return refusal(http.StatusBadRequest, metav1.StatusReasonBadRequest)
	}
	items := []any{}
	for _, at := range slices.Sorted(maps.Keys(s.objects)) {
		object := &unstructured.Unstructured{Object: s.objects[at]}
		if strings.HasPrefix(at, path+"/") && selected.Matches(labels.Set(object.GetLabels())) {
			items = append(items, object.Object)
		}
	}
	return map[string]any{"apiVersion": "v1", "kind": "SecretList", "items": items}
}

func refusal(code int32, reason metav1.StatusReason) metav1.Status {
	return metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Reason: reason, Code: code, Message: string(reason),
	}
}

// object decodes what is at a path.
func (s *apiServer) object(t *testing.T, path string, to any) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	data, err := json.Marshal(s.objects[path])
	if err == nil {
		err = json.Unmarshal(data, to)
	}
	if err != nil || s.objects[path] == nil {
		t.Fatalf("there is no object at %s (%v)", path, err)
	}
}

// change applies a merge patch to what is at a path, as a person would.
func (s *apiServer) change(path string, patch map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[path] = merged(s.objects[path], patch)
}
