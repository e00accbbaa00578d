package image_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/dupip/dupip/internal/testneeds"
	"github.com/dupip/dupip/tests/image"
)

// bound is the most that an image may weigh as it is fetched, in bytes.
const bound = 20e6

const (
	imageName = "registry.example:5000/dupip:1.2"
	version   = "v1.2.3-image-test"
	label     = "org.opencontainers.image."
)

// TestImage checks what is in the archive, that it runs, and that it can be built again.
func TestImage(t *testing.T) {
	testneeds.Slow(t) // builds for two architectures
	testneeds.Root(t) // runs the program of the image in its own root
	path := filepath.Join(t.TempDir(), "image.tar")
	// Any time but that of the build.
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	out, err := image.Make(t.Context(), path, "-name", imageName, "-version", version)
	if err != nil {
		t.Fatal(err)
	}
	checkSizes(t, out)
	list := open(t, path, imageName)
	for _, want := range []string{imageName, list.digest, path, version, "linux/amd64", "linux/arm64"} {
		if !strings.Contains(out, want) {
			t.Errorf("%s is not in the output:\n%s", want, out)
		}
	}
	if want := []string{"linux/amd64", "linux/arm64"}; !slices.Equal(list.platforms, want) {
		t.Fatalf("images for %v, want %v", list.platforms, want)
	}
	for i, machine := range []elf.Machine{elf.EM_X86_64, elf.EM_AARCH64} {
		t.Run(list.platforms[i], func(t *testing.T) { checkImage(t, list.images[i], machine) })
		t.Run("docker "+list.platforms[i], func(t *testing.T) { checkDocker(t, path, list.images[i]) })
	}

	t.Run("runs", func(t *testing.T) {
		i := slices.Index(list.platforms, "linux/"+runtime.GOARCH)
		if i < 0 {
			t.Fatalf("no image for this machine's %s", runtime.GOARCH)
		}
		for want, args := range map[string][]string{
			fmt.Sprintf("dupip %s (%s, linux/%s)\n", version, runtime.Version(), runtime.GOARCH): {"/usr/bin/dupip", "version"},
			fmt.Sprintf("dupip-reporter version %s\n", version):                                  {"/usr/bin/dupip-reporter", "--version"},
		} {
			if out := runIn(t, list.images[i], args...); out != want {
				t.Errorf("it prints %q, want %q", out, want)
			}
		}
	})

	// In another place, with another umask.
	t.Run("again", func(t *testing.T) {
		t.Setenv("TMPDIR", t.TempDir())
		old := syscall.Umask(0o077)
		defer syscall.Umask(old)
		second := filepath.Join(t.TempDir(), "second.tar")
		if _, err := image.Make(t.Context(), second, "-name", imageName, "-version", version); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(read(t, path), read(t, second)) {
			t.Error("the archives of the same sources differ")
		}
		if info, err := os.Stat(second); err != nil || info.Mode() != 0o644 {
			t.Errorf("the archive is %v, %v", info.Mode(), err)
		}
		for dir, want := range map[string]int{os.Getenv("TMPDIR"): 0, filepath.Dir(second): 1} {
			if left, err := os.ReadDir(dir); err != nil || len(left) != want {
				t.Errorf("it leaves %v, %v", left, err)
			}
		}
	})
}

// archive is what an OCI archive holds.
type archive struct {
	digest    string // of the index of the images
	platforms []string
	images    []v1.Image
}

// checkSizes compares the sizes that the page has, in whole MB, with those that were printed.
func checkSizes(t *testing.T, printed string) {
	t.Helper()
	page, err := os.ReadFile("../../deploy/README.md")
	if err != nil {
		t.Fatal(err)
	}
	stated := regexp.MustCompile(`(\d+) MB to fetch and (\d+) MB on disk \((\d+) and (\d+) MB on arm64\)`).FindStringSubmatch(string(page))
	measured := regexp.MustCompile(`amd64: ([\d.]+) MB, unpacked ([\d.]+) MB\s+linux/arm64: ([\d.]+) MB, unpacked ([\d.]+) MB`).FindStringSubmatch(printed)
	if stated == nil || measured == nil {
		t.Fatalf("deploy/README.md has the sizes %q, measured are %q", stated, measured)
	}
	for i := 1; i < len(stated); i++ {
		size, err := strconv.ParseFloat(measured[i], 64)
		page, wrong := strconv.ParseFloat(stated[i], 64)
		if err := errors.Join(err, wrong); err != nil || math.Abs(size-page) >= 1 {
			t.Errorf("deploy/README.md says %q, measured is %q (%v)", stated[0], measured[0], err)
		}
	}
}

// open reads the archive at path, which has to hold one index with this name. The content of
// everything in it has to match its digest and its size.
func open(t *testing.T, path, wantName string) archive {
	t.Helper()
	dir := t.TempDir()
	for r := tar.NewReader(bytes.NewReader(read(t, path))); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err == nil {
			err = os.MkdirAll(filepath.Join(dir, filepath.Dir(h.Name)), 0o700)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, h.Name), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if sum, blob := strings.CutPrefix(h.Name, "blobs/sha256/"); blob && fmt.Sprintf("%x", sha256.Sum256(data)) != sum {
			t.Fatalf("%s is damaged", h.Name)
		}
	}
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(top); err != nil {
		t.Fatal(err)
	}
	entries := manifests(t, top)
	if len(entries) != 1 || entries[0].MediaType != types.OCIImageIndex || entries[0].Annotations[label+"ref.name"] != wantName {
		t.Fatalf("index.json has %+v, want an index of the name %s", entries, wantName)
	}
	list, err := top.ImageIndex(entries[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	a := archive{digest: entries[0].Digest.String()}
	for _, d := range manifests(t, list) {
		// Old releases of skopeo drop the field, which changes the digest of the index, and fail
		// with --preserve-digests.
		if d.ArtifactType != "" {
			t.Errorf("the image for %s has the artifact type %s, want none", d.Platform, d.ArtifactType)
		}
		img, err := list.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		a.platforms, a.images = append(a.platforms, d.Platform.String()), append(a.images, img)
	}
	return a
}

func manifests(t *testing.T, idx v1.ImageIndex) []v1.Descriptor {
	t.Helper()
	m, err := idx.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	return m.Manifests
}

func checkImage(t *testing.T, img v1.Image, machine elf.Machine) {
	file, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	labels := file.Config.Labels
	// Not known where git is not there, or does not trust the owner of the checkout.
	if revision, ok := labels[label+"revision"]; ok {
		if !regexp.MustCompile(`^[0-9a-f]{40,64}(-dirty)?$`).MatchString(revision) {
			t.Errorf("the revision is %q", revision)
		}
		delete(labels, label+"revision")
	} else if exec.Command("git", "status").Run() == nil {
		t.Error("the revision is not there, and git knows it")
	}
	want := v1.Config{
		User:       "0:0",
		Env:        []string{"PATH=/usr/bin"},
		Entrypoint: []string{"/usr/bin/dupip"},
		Cmd:        []string{"agent"},
		Labels: map[string]string{
			label + "title":       "dupip",
			label + "description": "Finds duplicate pod IPs by looking at packets",
			label + "licenses":    "Apache-2.0",
			label + "version":     version,
		},
	}
	if diff := cmp.Diff(want, file.Config); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	if made := file.Created.Format(time.RFC3339); made != "2023-11-14T22:13:20Z" {
		t.Errorf("it was created at %s", made)
	}
	l := layer(t, img)
	if size, err := l.Size(); err != nil || size > bound {
		t.Errorf("it weighs %.1f MB, %v, the bound is %.1f MB", float64(size)/1e6, err, bound/1e6)
	}

	headers, contents := files(t, l)
	var got []string
	for _, h := range headers {
		got = append(got, fmt.Sprintf("%s %d:%d %d /%s", h.FileInfo().Mode(), h.Uid, h.Gid, h.ModTime.Unix(), h.Name))
	}
	if diff := cmp.Diff([]string{
		"drwxr-xr-x 0:0 1700000000 /usr/",
		"drwxr-xr-x 0:0 1700000000 /usr/bin/",
		"-rwxr-xr-x 0:0 1700000000 /usr/bin/dupip",
		"-rwxr-xr-x 0:0 1700000000 /usr/bin/dupip-reporter",
	}, got); diff != "" {
		t.Fatalf("files (-want +got):\n%s", diff)
	}

	for _, program := range contents[2:] {
		checkProgram(t, program, machine)
	}
}

// checkProgram: it runs where there is nothing but itself.
func checkProgram(t *testing.T, program []byte, machine elf.Machine) {
	binary, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		t.Fatal(err)
	}
	if binary.Machine != machine {
		t.Errorf("the binary is for %s, want %s", binary.Machine, machine)
	}
	for _, p := range binary.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("the binary is not static: it has a %s", p.Type)
		}
	}
	if libraries, err := binary.ImportedLibraries(); err != nil || len(libraries) > 0 {
		t.Errorf("the binary wants the libraries %v, %v", libraries, err)
	}
	if binary.Section(".symtab") != nil || binary.Section(".debug_info") != nil {
		t.Error("the binary is not stripped")
	}
}

// layer is the only layer of an image.
func layer(t *testing.T, img v1.Image) v1.Layer {
	t.Helper()
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v, want 1", len(layers), err)
	}
	return layers[0]
}

// files are the entries of a layer in their order, and their contents.
func files(t *testing.T, l v1.Layer) (headers []*tar.Header, contents [][]byte) {
	t.Helper()
	unpacked, err := l.Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer unpacked.Close()
	for r := tar.NewReader(unpacked); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return headers, contents
		}
		if err == nil {
			var content []byte
			content, err = io.ReadAll(r)
			headers, contents = append(headers, h), append(contents, content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// checkDocker checks that `docker load` finds the same image by its tag.
func checkDocker(t *testing.T, path string, want v1.Image) {
	file, err := want.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(imageName + "-" + file.Architecture)
	if err != nil {
		t.Fatal(err)
	}
	got, err := tarball.ImageFromPath(path, &tag)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(got); err != nil {
		t.Error(err)
	}
	a, err := want.ConfigName()
	if b, gotErr := got.ConfigName(); a != b || err != nil || gotErr != nil {
		t.Errorf("the configurations are %s, %v and %s, %v", a, err, b, gotErr)
	}
	a, err = layer(t, want).Digest()
	if b, gotErr := layer(t, got).Digest(); a != b || err != nil || gotErr != nil {
		t.Errorf("the layers are %s, %v and %s, %v", a, err, b, gotErr)
	}
}

// runIn runs a program of an image where nothing but the image is.
func runIn(t *testing.T, img v1.Image, args ...string) string {
	t.Helper()
	file, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	headers, contents := files(t, layer(t, img))
	for i, h := range headers {
		path, mode := filepath.Join(root, h.Name), h.FileInfo().Mode()
		if mode.IsDir() {
			err = os.Mkdir(path, mode.Perm())
		} else {
			err = os.WriteFile(path, contents[i], mode.Perm())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Env, cmd.Dir = file.Config.Env, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("running it: %v\n%s", err, out)
	}
	return string(out)
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestBuild: the archive that other tests import.
func TestBuild(t *testing.T) {
	t.Setenv(image.Variable, "")
	path, err := image.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := open(t, path, image.Name).platforms, []string{"linux/" + runtime.GOARCH}; !slices.Equal(got, want) {
		t.Errorf("images for %v, want %v", got, want)
	}
	manifest := string(read(t, "../../deploy/dupip.yaml"))
	if want := "image: " + image.Name + "\n"; !strings.Contains(manifest, want) {
		t.Errorf("%q is not in the manifest", want)
	}

	// One that is there already.
	t.Setenv(image.Variable, path)
	if got, err := image.Build(t.Context(), "/nowhere"); err != nil || got != path {
		t.Errorf("Build returns %q, %v, want %s", got, err, path)
	}
}
