package cri

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/dupip/dupip/tests/lab"
)

// SandboxImage is the name of the image of every pod. Start imports it. Its program is package pause.
const SandboxImage = "dupip.test/pause:1"

// importTimeout is for an image of some ten megabytes, on a busy machine.
const importTimeout = time.Minute

// pauseBinary is a static build of the pause command.
var pauseBinary = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", namePrefix+"build-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "pause")
	if err := lab.Build("", path, "github.com/dupip/dupip/tests/cri/pause", "-ldflags=-s -w"); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

// importPause imports the sandbox image. The tag is an argument of its process, so that killAll finds it.
func (r *Runtime) importPause(ctx context.Context) error {
	path := filepath.Join(r.dir, "image.tar")
	if err := WriteSandboxImage(path, r.tag); err != nil {
		return err
	}
	defer os.Remove(path)
	return r.Import(ctx, path, SandboxImage)
}

// WriteSandboxImage writes an archive with the [SandboxImage], whose process has this argument.
func WriteSandboxImage(path, tag string) error {
	binary, err := pauseBinary()
	if err != nil {
		return err
	}
	return WriteImage(path, SandboxImage, "/pause", binary, tag)
}

// WriteImage writes an archive with an image of this name for this machine's architecture. It has one static program, at a path, with
// these arguments, which is in the PATH.
func WriteImage(archive, image, path string, program []byte, args ...string) error {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	err := w.WriteHeader(&tar.Header{Name: strings.TrimPrefix(path, "/"), Mode: 0o755, Size: int64(len(program))})
	if err == nil {
		_, err = w.Write(program)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		return err
	}
	made, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		Architecture: runtime.GOARCH, OS: "linux", RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{Entrypoint: []string{path}, Cmd: args, Env: []string{"PATH=" + filepath.Dir(path)}, WorkingDir: "/"},
	})
	if err != nil {
		return err
	}
	made, err = mutate.AppendLayers(made, static.NewLayer(layer.Bytes(), types.DockerUncompressedLayer))
	if err != nil {
		return err
	}
	reference, err := name.ParseReference(image)
	if err != nil {
		return err
	}
	return tarball.WriteToFile(archive, reference, made)
}

// Import gives the runtime the images of an archive, as `docker save` or OCI has them, and
// waits until it knows the one of that name. Of several architectures it takes its own.
func (r *Runtime) Import(ctx context.Context, archive, name string) error {
	ctx, cancel := context.WithTimeout(ctx, importTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "ctr", "--address", r.Socket, "--namespace", "k8s.io", "images", "import", archive).CombinedOutput()
	if err != nil {
		return fmt.Errorf("import image %s: %w\n%s", name, err, out)
	}
	// The CRI plugin is notified by an event.
	err = lab.Poll(ctx, importTimeout, func() error {
		status, err := r.images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: name}})
		if err == nil && status.GetImage() == nil {
			err = errors.New("the runtime does not know it")
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("import image %s: %w; the archive has: %s", name, err, out)
	}
	return nil
}
