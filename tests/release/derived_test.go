package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// The list of modules has what `go version -m` prints of a program: of the one that runs this test.
func TestModules(t *testing.T) {
	file, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "go", "version", "-m", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p, err := newProgram("dupip", "linux", "amd64", content)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"pkg:golang/stdlib@" + strings.TrimPrefix(p.info.GoVersion, "go")}
	for _, m := range regexp.MustCompile(`(?m)^\tdep\t(\S+)\t(\S+)`).FindAllStringSubmatch(string(out), -1) {
		want = append(want, "pkg:golang/"+m[1]+"@"+m[2])
	}
	if len(want) < 5 {
		t.Fatalf("only %v", want)
	}
	p.info.Settings = append(p.info.Settings, debug.BuildSetting{Key: "vcs.revision", Value: "abc"}, debug.BuildSetting{Key: "vcs.time", Value: "2026-01-02T03:04:05Z"})

	text, err := release{version: "0.2.0"}.modules([]program{p})
	if err != nil {
		t.Fatal(err)
	}
	var bom struct {
		BOMFormat, SpecVersion, SerialNumber string
		Metadata                             struct{ Timestamp string }
		Components                           []struct {
			Type, PURL string
			Hashes     []struct{ Alg, Content string }
		}
		Dependencies []struct {
			Ref       string
			DependsOn []string
		}
	}
	if err := json.Unmarshal(text, &bom); err != nil {
		t.Fatal(err)
	}
	var libraries []string
	for _, c := range bom.Components {
		if c.Type == "library" {
			libraries = append(libraries, c.PURL)
		} else if got, want := fmt.Sprint(c.Hashes), fmt.Sprintf("[{SHA-256 %x}]", sha256.Sum256(content)); got != want {
			t.Errorf("the program has the hashes %s, want %s", got, want)
		}
	}
	slices.Sort(want)
	if !slices.Equal(libraries, want) {
		t.Errorf("it lists %v, want %v", libraries, want)
	}
	depends := bom.Dependencies[0].DependsOn
	slices.Sort(depends)
	if bom.Dependencies[0].Ref != "dupip_linux_amd64" || !slices.Equal(depends, want) {
		t.Errorf("%s needs %v, want %v", bom.Dependencies[0].Ref, depends, want)
	}
	uuid := regexp.MustCompile(`^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	if bom.BOMFormat != "CycloneDX" || bom.SpecVersion != "1.6" || bom.Metadata.Timestamp != "2026-01-02T03:04:05Z" || !uuid.MatchString(bom.SerialNumber) {
		t.Errorf("it is %s %s of %s, %s", bom.BOMFormat, bom.SpecVersion, bom.Metadata.Timestamp, bom.SerialNumber)
	}
}

// krewPlugin has the fields of https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/, and no others.
type krewPlugin struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Version          string `json:"version"`
		Homepage         string `json:"homepage"`
		ShortDescription string `json:"shortDescription"`
		Description      string `json:"description"`
		Caveats          string `json:"caveats"`
		Platforms        []struct {
			Selector *metav1.LabelSelector `json:"selector"`
			URI      string                `json:"uri"`
			SHA256   string                `json:"sha256"`
			Bin      string                `json:"bin"`
		} `json:"platforms"`
	} `json:"spec"`
}

// The manifest for krew is what krew's documentation asks for, and leads to the archives.
func TestKrew(t *testing.T) {
	r := release{"0.2.0", t.TempDir()}
	sums := make(map[string]string)
	for _, system := range systems {
		for _, arch := range arches {
			name, content := r.plugin(system, arch), system+arch
			if err := r.write(name, []byte(content)); err != nil {
				t.Fatal(err)
			}
			sums["https://github.com/dupip/dupip/releases/download/v0.2.0/"+name] = fmt.Sprintf("%s %s %x", system, arch, sha256.Sum256([]byte(content)))
		}
	}
	text, err := r.krew()
	if err != nil {
		t.Fatal(err)
	}
	var p krewPlugin
	if err := yaml.UnmarshalStrict(text, &p); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if p.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || p.Kind != "Plugin" || p.Metadata.Name != "dupip" || p.Spec.Version != "v0.2.0" {
		t.Errorf("it is %s %s %s %s", p.APIVersion, p.Kind, p.Metadata.Name, p.Spec.Version)
	}
	if s := p.Spec.ShortDescription; s == "" || len(s) > 50 || strings.ContainsAny(s, "\r\n") {
		t.Errorf("the short description is %q", s)
	}
	for line := range strings.Lines(p.Spec.Description + p.Spec.Caveats) {
		if len(line) > 81 {
			t.Errorf("longer than 80 characters: %s", line)
		}
	}
	for _, platform := range p.Spec.Platforms {
		labels := platform.Selector.MatchLabels
		if got := labels["os"] + " " + labels["arch"] + " " + platform.SHA256; got != sums[platform.URI] || len(labels) != 2 || platform.Bin != "kubectl-dupip" {
			t.Errorf("%s is for %s, want %s", platform.URI, got, sums[platform.URI])
		}
		delete(sums, platform.URI)
	}
	if len(sums) > 0 {
		t.Errorf("it does not have %v", sums)
	}
}

// Archives are the same twice, and have one time and root's files only.
func TestTarGz(t *testing.T) {
	created := time.Unix(1_700_000_000, 0)
	files := map[string][]byte{pluginName: []byte("program"), "LICENSE": []byte("text"), "a": nil, "b": nil}
	archive, err := tarGz(files, created)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := tarGz(files, created); err != nil || !bytes.Equal(archive, again) {
		t.Errorf("the archives of the same files differ, %v", err)
	}
	r, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	if !r.ModTime.IsZero() || r.Name != "" {
		t.Errorf("it has the time %s and the name %q", r.ModTime, r.Name)
	}
	var got []string
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if err != nil {
			break
		}
		got = append(got, fmt.Sprintf("%s %d %d:%d%s %d", path.Clean(h.Name), h.Mode, h.Uid, h.Gid, h.Uname, h.ModTime.Unix()))
	}
	want := []string{"LICENSE 420 0:0 1700000000", "a 420 0:0 1700000000", "b 420 0:0 1700000000", "kubectl-dupip 493 0:0 1700000000"}
	if !slices.Equal(got, want) {
		t.Errorf("it has %q, want %q", got, want)
	}
	if back, err := untarGz(archive); err != nil || len(back) != len(files) || string(back[pluginName]) != "program" {
		t.Errorf("%v, %v", back, err)
	}
	for i := range archive {
		damaged := slices.Clone(archive)
		damaged[i] ^= 1
		if back, err := untarGz(damaged); err == nil && (string(back[pluginName]) != "program" || string(back["LICENSE"]) != "text") {
			t.Errorf("byte %d: damage is not noticed: %v", i, back)
		}
	}
}
