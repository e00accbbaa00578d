package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/renameio/v2"
)

// labelPrefix begins the names of annotations and labels of the OCI image specification.
const labelPrefix = "org.opencontainers.image."

// containerConfig returns how a container runs the program. It is the same for every architecture.
func containerConfig(version, revision string) v1.Config {
	labels := map[string]string{
		labelPrefix + "title":       "dupip",
		labelPrefix + "description": "Finds duplicate pod IPs by looking at packets",
		labelPrefix + "licenses":    "Apache-2.0",
		labelPrefix + "version":     version,
		labelPrefix + "revision":    revision,
	}
	maps.DeleteFunc(labels, func(_, value string) bool { return value == "" }) // unknown
	return v1.Config{
		User:       "0:0",                     // the agent loads BPF programs and enters network namespaces
		Env:        []string{"PATH=/usr/bin"}, // for `kubectl exec POD -- dupip conflicts`
		Entrypoint: []string{"/usr/bin/dupip"},
		Cmd:        []string{"agent"},
		Labels:     labels,
	}
}

// withoutArtifactType is an image whose entry in an index has no artifactType. The library would set it.
// Old releases of skopeo drop it, so they change the digest of the index or refuse to copy it.
type withoutArtifactType struct{ v1.Image }

// ArtifactType replaces the method of [v1.Image] that the library calls.
func (withoutArtifactType) ArtifactType() (string, error) { return "", nil }

// newImage returns the image for one architecture. Its only layer has the programs, owned by root.
// Container runtimes create mount points themselves.
func newImage(arch string, contents [][]byte, config v1.Config, created time.Time) (v1.Image, error) {
	var files bytes.Buffer
	w := tar.NewWriter(&files)
	for _, name := range []string{"usr/", "usr/bin/"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755, ModTime: created}); err != nil {
			return nil, err
		}
	}
	for i, p := range programs {
		h := tar.Header{Typeflag: tar.TypeReg, Name: "usr/bin/" + p.name, Mode: 0o755, ModTime: created, Size: int64(len(contents[i]))}
		if err := w.WriteHeader(&h); err != nil {
			return nil, err
		}
		if _, err := w.Write(contents[i]); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer),
		tarball.WithCompressionLevel(gzip.DefaultCompression),
		tarball.WithCompressedCaching,
	)
	if err != nil {
		return nil, err
	}
	diffID, err := layer.DiffID()
	if err != nil {
		return nil, err
	}
	img, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), layer)
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(img, &v1.ConfigFile{
		Architecture: arch, OS: "linux", Created: v1.Time{Time: created.UTC()}, Config: config,
		RootFS: v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{diffID}},
	})
}

// dockerManifest returns the manifest.json of `docker save`, the only file that Docker reads without
// containerd's image store. It cannot refer to an index, so each image needs a tag of its own:
// name-architecture. Each image must have a platform and one layer, as those of newImage.
func dockerManifest(name string, idx v1.ImageIndex) ([]byte, error) {
	list, err := idx.IndexManifest()
	if err != nil {
		return nil, err
	}
	blob := func(d v1.Descriptor) string { return "blobs/" + d.Digest.Algorithm + "/" + d.Digest.Hex }
	var images tarball.Manifest
	for _, d := range list.Manifests {
		img, err := idx.Image(d.Digest)
		if err != nil {
			return nil, err
		}
		m, err := img.Manifest()
		if err != nil {
			return nil, err
		}
		images = append(images, tarball.Descriptor{
			Config: blob(m.Config), RepoTags: []string{name + "-" + d.Platform.Architecture}, Layers: []string{blob(m.Layers[0])},
		})
	}
	return json.Marshal(images)
}

// write writes an OCI archive: the files of an OCI image layout, in which idx with the image's name refers
// to the images, and a manifest.json for Docker. It replaces the file at path when the archive is complete.
// The directory dir is for temporary files; it must be empty or absent.
func write(path, dir, name string, idx v1.ImageIndex, created time.Time) error {
	files, err := layout.Write(dir, mutate.AppendManifests(empty.Index, mutate.IndexAddendum{
		Add:        idx,
		Descriptor: v1.Descriptor{Annotations: map[string]string{labelPrefix + "ref.name": name}},
	}))
	if err != nil {
		return fmt.Errorf("writing the image layout: %w", err)
	}
	manifest, err := dockerManifest(name, idx)
	if err == nil {
		err = files.WriteFile("manifest.json", manifest, 0o644)
	}
	if err != nil {
		return fmt.Errorf("writing manifest.json: %w", err)
	}
	f, err := renameio.NewPendingFile(path, renameio.WithStaticPermissions(0o644))
	if err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	defer f.Cleanup()
	w := tar.NewWriter(f)
	// In lexical order, without the times and permissions of the temporary files.
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, ModTime: created, Size: int64(len(data))}); err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	})
	if err == nil {
		err = w.Close()
	}
	if err == nil {
		err = f.CloseAtomicallyReplace()
	}
	if err != nil {
		return fmt.Errorf("writing the archive: %w", err)
	}
	return nil
}
