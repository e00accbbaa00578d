package cri

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/dupip/dupip/tests/lab"
)

// SandboxImage is the name of the image that every pod has, and that a runtime knows once
// it has been started. Its program waits for the end; see package pause.
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
	// git may not trust the folder's owner.
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", path,
		"github.com/dupip/dupip/tests/cri/pause")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the sandbox image: %w\n%s", err, out)
	}
	return os.ReadFile(path)
})

// imageArchive is the sandbox image as `docker save` writes one. The tag is an argument of
// the process in it, which its owner can find it by.
func imageArchive(tag string) ([]byte, error) {
	binary, err := pauseBinary()
	if err != nil {
		return nil, err
	}
	layer, err := tarOf(file{"pause", 0o755, binary})
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(layer)
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       map[string]any{"Entrypoint": []string{"/pause"}, "Cmd": []string{tag}, "WorkingDir": "/"},
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum[:])}},
	})
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal([]map[string]any{{
		"Config": "config.json", "RepoTags": []string{SandboxImage}, "Layers": []string{"layer.tar"},
	}})
	if err != nil {
		return nil, err
	}
	return tarOf(file{"manifest.json", 0o644, manifest}, file{"config.json", 0o644, config}, file{"layer.tar", 0o644, layer})
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
	// The CRI part hears of it by an event.
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

type file struct {
	name string
	mode int64
	data []byte
}

func tarOf(files ...file) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data))}); err != nil {
			return nil, fmt.Errorf("write an archive: %w", err)
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, fmt.Errorf("write an archive: %w", err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("write an archive: %w", err)
	}
	return b.Bytes(), nil
}
