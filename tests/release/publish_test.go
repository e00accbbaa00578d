package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/dupip/dupip/tests/cosign"
	"github.com/dupip/dupip/tests/helm"
	"github.com/dupip/dupip/tests/release/releasetest"
)

var keychain = remote.WithAuthFromKeychain(authn.DefaultKeychain)

// testPublished publishes to a registry that asks for the credentials of docker login, with GitHub's gh replaced by a script that writes down how it
// is called. Image and chart are there as they are in the release, and signed by its key only.
func testPublished(t *testing.T, r release, keys string) {
	t.Setenv("SSL_CERT_DIR", "") // serve sets it
	host, end, err := serve(withPassword(newRegistry()))
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	dir := t.TempDir()
	t.Setenv("DOCKER_CONFIG", dir)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for name, text := range map[string]string{
		"config.json": fmt.Sprintf(`{"auths": {%q: {"auth": "dXNlcjpwYXNzd29yZA=="}}}`, host), // user:password
		"gh":          "#!/bin/sh\nprintf '%s\\n' \"$@\" >\"$0.said\"\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	to := host + "/dupip"
	testNotPublished(t, r, to, keys)

	dry, err := makePublish(t, r, r.version, keys+".key", "")
	if _, missing := os.Stat(filepath.Join(dir, "gh.said")); err != nil || missing == nil {
		t.Fatalf("a dry run: %v, or GitHub was asked", err)
	}
	said, err := makePublish(t, r, r.version, keys+".key", to)
	if err != nil {
		t.Fatal(err)
	}
	refs := regexp.MustCompile(`(?m)^(?:image|chart)  (\S+)$`).FindAllStringSubmatch(said, -1)
	if len(refs) != 2 {
		t.Fatalf("it names %q", refs)
	}
	testSigned(t, refs[0][1], refs[1][1], keys)
	testSame(t, r, refs[0][1], refs[1][1])

	gh, err := os.ReadFile(filepath.Join(dir, "gh.said"))
	if err != nil {
		t.Fatal(err)
	}
	testOnGitHub(t, r, strings.Split(strings.TrimSpace(string(gh)), "\n"), dry)
	for _, text := range []string{dry, said} {
		if !strings.Contains(text, krewIndex) {
			t.Error("it does not say what is left to do")
		}
	}
}

// withPassword is a registry that nobody may read or write without user and password, as those that publish are.
func withPassword(registry http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user+":"+password != "user:password" {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		registry.ServeHTTP(w, r)
	})
}

// makePublish runs make publish, and returns what it prints.
func makePublish(t *testing.T, r release, version, key, to string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "make", "publish", "VERSION="+version, "KEY="+key, "REGISTRY="+to, "RELEASE="+r.dir)
	cmd.Dir = "../.."
	out, err := cmd.CombinedOutput()
	t.Logf("make publish VERSION=%s KEY=%s REGISTRY=%s: %v\n%s", version, key, to, err, out)
	return string(out), err
}

// testNotPublished: what is missing or wrong is said in one line, and nothing is published.
func testNotPublished(t *testing.T, r release, to, keys string) {
	refused := func(version, key, want string) {
		t.Helper()
		out, err := makePublish(t, r, version, key, to)
		first, _, _ := strings.Cut(strings.TrimPrefix(out, "release: "), "\n")
		if err == nil || !strings.Contains(first, want) {
			t.Errorf("version %s, key %s: %v, want %q in the first line", version, key, err, want)
		}
	}
	refused(r.version, "", "KEY=cosign.key names the private key")
	refused("", keys+".key", "a release has a version such as 0.2.0")
	refused("0.9.9", keys+".key", r.dir+" has no release 0.9.9: make release VERSION=0.9.9 KEY="+keys+".key makes it")
	refused(r.version, releasetest.Keys(t)+".key", "is not as KEY=")
	change(t, r, r.chart(), func() { refused(r.version, keys+".key", r.chart()+" is not what SHA256SUMS says") })
	for _, repository := range []string{"/dupip", "/charts/dupip"} {
		tag, err := name.NewTag(to + repository + ":" + r.version)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := remote.Head(tag, keychain); err == nil || !strings.Contains(err.Error(), "404") {
			t.Errorf("%s is published: %v", tag, err)
		}
	}
}

// testSigned: image, each image in it and chart are signed by the key, for this version only.
func testSigned(t *testing.T, image, chart, keys string) {
	path, err := cosign.Path()
	if err != nil {
		t.Fatal(err)
	}
	verify := func(ref, keys, version string) error {
		out, err := exec.CommandContext(t.Context(), path, "verify", "--key", keys+".pub", "--insecure-ignore-tlog=true", "--annotations", "version="+version, ref).CombinedOutput()
		t.Logf("%s, version %s: %v\n%s", ref, version, err, out)
		return err
	}
	top, err := name.NewDigest(image)
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(top, keychain)
	if err != nil {
		t.Fatal(err)
	}
	list, err := index.IndexManifest()
	if err != nil || len(list.Manifests) != len(arches) {
		t.Fatalf("%v, %+v", err, list)
	}
	refs := []string{image, chart}
	for _, m := range list.Manifests { // what each platform pulls
		refs = append(refs, top.Digest(m.Digest.String()).String())
	}
	for _, ref := range refs {
		if err := verify(ref, keys, testVersion); err != nil {
			t.Error(ref + " is not signed")
		}
	}
	others := releasetest.Keys(t)
	for _, ref := range refs[:2] {
		if verify(ref, others, testVersion) == nil {
			t.Error(ref + " is signed by any key")
		}
		if verify(ref, keys, "0.2.1") == nil {
			t.Error(ref + " is signed for any version")
		}
	}

	// Somebody moves the tag to another image: without a signature, and with that of the true one.
	forged := mutate.Annotations(index, map[string]string{"by": "somebody"}).(v1.ImageIndex)
	if err := remote.WriteIndex(top.Tag(testVersion), forged, keychain); err != nil {
		t.Fatal(err)
	}
	if verify(top.Tag(testVersion).String(), keys, testVersion) == nil {
		t.Error("somebody else's image counts as signed")
	}
	digest, err := forged.Digest()
	if err != nil {
		t.Fatal(err)
	}
	signature := func(of string) name.Tag { return top.Tag(strings.Replace(of, ":", "-", 1) + ".sig") }
	stolen, err := remote.Image(signature(top.DigestStr()), keychain)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(signature(digest.String()), stolen, keychain); err != nil {
		t.Fatal(err)
	}
	if verify(top.Tag(testVersion).String(), keys, testVersion) == nil {
		t.Error("the signature of the image counts for somebody else's")
	}
}

// testSame: what is pulled by digest is what the release has.
func testSame(t *testing.T, r release, image, chart string) {
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "tar", "-C", dir, "-xf", r.path(r.image())).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	archive, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	list, err := archive.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	ref, err := name.NewDigest(image)
	if err != nil {
		t.Fatal(err)
	}
	pulled, err := remote.Index(ref, keychain)
	if err != nil {
		t.Fatal(err)
	}
	// All layers are pulled, and each has the digest that the manifests say.
	if err := validate.Index(pulled); err != nil || ref.DigestStr() != list.Manifests[0].Digest.String() {
		t.Errorf("the image is %s, in the archive %s: %v", ref, list.Manifests[0].Digest, err)
	}

	if _, err := helm.Run(t.Context(), "", "pull", "oci://"+chart, "--destination", dir); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil || len(files) != 1 {
		t.Fatalf("helm has pulled %q, %v", files, err)
	}
	got, err := os.ReadFile(files[0])
	if err != nil || !bytes.Equal(got, contents(t, r, r.chart())[r.chart()]) {
		t.Errorf("the chart in the registry is another one: %v", err)
	}
}

// testOnGitHub: the release on GitHub has all files, where the dry run and the manifest for krew say.
func testOnGitHub(t *testing.T, r release, gh []string, dry string) {
	if want := []string{"release", "create", "v" + r.version, "--verify-tag"}; !slices.Equal(gh[:len(want)], want) || !slices.Contains(gh, "--prerelease") {
		t.Errorf("it is made by %q", gh)
	}
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !slices.Contains(gh, r.path(e.Name())) || !strings.Contains(dry, "\n  https://github.com/dupip/dupip/releases/download/v"+r.version+"/"+e.Name()+"\n") {
			t.Errorf("%s is not published, or the dry run does not say where", e.Name())
		}
	}
	addresses := regexp.MustCompile(`(?m)^ +uri: (.*)$`).FindAllStringSubmatch(string(contents(t, r, krewFile)[krewFile]), -1)
	for _, a := range addresses {
		if !strings.Contains(dry, "\n  "+a[1]+"\n") {
			t.Errorf("krew would look for %s", a[1])
		}
	}
	if len(addresses) != len(arches)*len(systems) {
		t.Errorf("krew has %d addresses", len(addresses))
	}
}
