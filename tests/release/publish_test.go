package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/dupip/dupip/tests/cosign"
	"github.com/dupip/dupip/tests/helm"
	"github.com/dupip/dupip/tests/release/releasetest"
)

// testPublished publishes to a registry. Image and chart are there as they are in the release, and signed; another key has signed nothing, and what
// somebody else pushes is not signed.
func testPublished(t *testing.T, r release, keys string) {
	to, end, err := ownRegistry()
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	var said bytes.Buffer
	if err := r.pushAndSign(t.Context(), to+"/dupip", keys+".key", &said); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", &said)
	refs := regexp.MustCompile(`(?m)^(?:image|chart)  (\S+)$`).FindAllStringSubmatch(said.String(), -1)
	if len(refs) != 2 {
		t.Fatalf("it names %q", refs)
	}
	path, err := cosign.Path()
	if err != nil {
		t.Fatal(err)
	}
	verified := func(ref, keys string) bool {
		out, err := exec.CommandContext(t.Context(), path, "verify", "--key", keys+".pub", "--insecure-ignore-tlog=true", "--allow-http-registry", ref).CombinedOutput()
		t.Logf("%s: %v\n%s", ref, err, out)
		return err == nil
	}
	others := releasetest.Keys(t)
	for _, ref := range refs {
		if !verified(ref[1], keys) || verified(ref[1], others) {
			t.Errorf("%s is not signed, or by any key", ref[1])
		}
	}

	image, err := name.NewDigest(refs[0][1])
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(image)
	if err != nil {
		t.Fatal(err)
	}
	list, err := index.IndexManifest()
	if err != nil || len(list.Manifests) < 2 {
		t.Fatalf("%v, %+v", err, list)
	}
	for _, m := range list.Manifests { // what each platform pulls is there, and signed
		if ref := image.Digest(m.Digest.String()); !verified(ref.String(), keys) {
			t.Errorf("%s is not signed", ref)
		}
	}
	forged := mutate.Annotations(index, map[string]string{"by": "somebody"}).(v1.ImageIndex)
	if err := remote.WriteIndex(image.Tag(testVersion), forged); err != nil {
		t.Fatal(err)
	}
	if ref := image.Tag(testVersion).String(); verified(ref, keys) {
		t.Errorf("somebody else's %s counts as signed", ref)
	}

	dir := t.TempDir()
	if _, err := helm.Run(t.Context(), "", "pull", "oci://"+to+"/dupip/charts/dupip", "--version", testVersion, "--plain-http", "--destination", dir); err != nil {
		t.Fatal(err)
	}
	pulled, err := os.ReadFile(filepath.Join(dir, r.chart()))
	if err != nil || !bytes.Equal(pulled, contents(t, r, r.chart())[r.chart()]) {
		t.Errorf("the chart in the registry is another one: %v", err)
	}
	if !strings.Contains(said.String(), "oci://"+to+"/dupip/charts/dupip --version "+testVersion) {
		t.Error("it does not say how to install it")
	}
}
