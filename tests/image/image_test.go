package image_test

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dupip/dupip/tests/image"
)

// bound is the most that an image may weigh as it is fetched, in bytes. It is 9.4 MB.
const bound = 14e6

const version = "v1.2.3-image-test"

// TestImage: what is in the archive, by the archive itself; and that it runs.
func TestImage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "image.tar")
	// Any time but that of the build.
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	said, err := image.Make(t.Context(), path, "-name", "registry.example:5000/dupip:1.2", "-version", version)
	if err != nil {
		t.Fatal(err)
	}
	a, err := image.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if a.Name != "registry.example:5000/dupip:1.2" {
		t.Errorf("the name is %q", a.Name)
	}
	for _, want := range []string{a.Name, a.Digest, path, version, "linux/amd64", "linux/arm64"} {
		if !strings.Contains(said, want) {
			t.Errorf("%s is not in what it says:\n%s", want, said)
		}
	}
	var platforms []string
	for _, img := range a.Images {
		platforms = append(platforms, img.Platform)
	}
	if want := []string{"linux/amd64", "linux/arm64"}; !slices.Equal(platforms, want) {
		t.Fatalf("images for %v, want %v", platforms, want)
	}
	for i, machine := range []elf.Machine{elf.EM_X86_64, elf.EM_AARCH64} {
		t.Run(platforms[i], func(t *testing.T) { checkImage(t, a.Images[i], machine) })
	}

	t.Run("runs", func(t *testing.T) {
		i := slices.Index(platforms, "linux/"+runtime.GOARCH)
		if i < 0 {
			t.Fatalf("no image for this machine's %s", runtime.GOARCH)
		}
		out := runIn(t, unpack(t, a.Images[i]), a.Images[i].Config, "version")
		if want := fmt.Sprintf("dupip %s (%s, linux/%s)\n", version, runtime.Version(), runtime.GOARCH); out != want {
			t.Errorf("it says %q, want %q", out, want)
		}
	})

	// In another place, with another umask.
	t.Run("again", func(t *testing.T) {
		t.Setenv("TMPDIR", t.TempDir())
		old := syscall.Umask(0o077)
		defer syscall.Umask(old)
		second := filepath.Join(t.TempDir(), "second.tar")
		if _, err := image.Make(t.Context(), second, "-name", a.Name, "-version", version); err != nil {
			t.Fatal(err)
		}
		b, err := image.Read(second)
		if err != nil {
			t.Fatal(err)
		}
		if a.Digest != b.Digest {
			t.Errorf("digests %s and %s of the same sources", a.Digest, b.Digest)
		}
		if !bytes.Equal(read(t, path), read(t, second)) {
			t.Error("the archives differ, the images in them do not")
		}
		if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
			t.Errorf("it leaves %v, %v", left, err)
		}
	})
}

func checkImage(t *testing.T, img image.Image, machine elf.Machine) {
	labels := img.Config.Labels
	// Not known where git is not there, or does not trust the owner of the checkout.
	if revision, ok := labels["org.opencontainers.image.revision"]; ok {
		if !regexp.MustCompile(`^[0-9a-f]{40,64}(-dirty)?$`).MatchString(revision) {
			t.Errorf("the revision is %q", revision)
		}
		delete(labels, "org.opencontainers.image.revision")
	} else if exec.Command("git", "status").Run() == nil {
		t.Error("the revision is not there, and git knows it")
	}
	// Docker says what a runtime takes anyway.
	if img.Config.WorkingDir == "/" {
		img.Config.WorkingDir = ""
	}
	want := image.Config{
		User:       "0:0",
		Env:        []string{"PATH=/usr/bin"},
		Entrypoint: []string{"/usr/bin/dupip"},
		Cmd:        []string{"agent"},
		Labels: map[string]string{
			"org.opencontainers.image.title":       "dupip",
			"org.opencontainers.image.description": "Finds duplicate pod IPs by looking at packets",
			"org.opencontainers.image.licenses":    "Apache-2.0",
			"org.opencontainers.image.version":     version,
		},
	}
	if diff := cmp.Diff(want, img.Config); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	if img.Created != "2023-11-14T22:13:20Z" {
		t.Errorf("it was created at %s", img.Created)
	}
	if img.Size > bound {
		t.Errorf("it weighs %.1f MB, the bound is %.1f MB", float64(img.Size)/1e6, bound/1e6)
	}

	var files []string
	for _, f := range img.Files {
		files = append(files, fmt.Sprintf("%s %d:%d %d /%s", f.Mode, f.UID, f.GID, f.ModTime, f.Path))
	}
	if diff := cmp.Diff([]string{
		"drwxr-xr-x 0:0 1700000000 /usr/",
		"drwxr-xr-x 0:0 1700000000 /usr/bin/",
		"-rwxr-xr-x 0:0 1700000000 /usr/bin/dupip",
	}, files); diff != "" {
		t.Fatalf("files (-want +got):\n%s", diff)
	}

	binary, err := elf.NewFile(bytes.NewReader(img.Files[2].Data))
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

// unpack makes a root of the image.
func unpack(t *testing.T, img image.Image) string {
	t.Helper()
	root := t.TempDir()
	for _, f := range img.Files {
		path := filepath.Join(root, f.Path)
		var err error
		if f.Mode.IsDir() {
			err = os.Mkdir(path, f.Mode.Perm())
		} else {
			err = os.WriteFile(path, f.Data, f.Mode.Perm())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// runIn runs the entrypoint of an image where nothing but the image is.
func runIn(t *testing.T, root string, config image.Config, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), config.Entrypoint[0], args...)
	cmd.Env, cmd.Dir = config.Env, "/"
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
	a, err := image.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if a.Name != image.Name || len(a.Images) != 1 || a.Images[0].Platform != "linux/"+runtime.GOARCH {
		t.Errorf("%d images of the name %q, the first one for %s", len(a.Images), a.Name, a.Images[0].Platform)
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
