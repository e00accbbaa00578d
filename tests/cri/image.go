package cri

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
)

// sandboxImage is the name of the image that every pod runs.
const sandboxImage = "dupip.test/pause:1"

// pauseBinary is a static build of the pause command.
var pauseBinary = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", namePrefix+"build-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "pause")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path,
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
		"Config": "config.json", "RepoTags": []string{sandboxImage}, "Layers": []string{"layer.tar"},
	}})
	if err != nil {
		return nil, err
	}
	return tarOf(file{"manifest.json", 0o644, manifest}, file{"config.json", 0o644, config}, file{"layer.tar", 0o644, layer})
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
