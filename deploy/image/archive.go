package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The media types of the OCI image specification that are read or written here.
const (
	indexType    = "application/vnd.oci.image.index.v1+json"
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	nameKey      = "org.opencontainers.image.ref.name"
)

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Platform    *platform         `json:"platform,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

type index struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Manifests     []descriptor `json:"manifests"`
}

type manifest struct {
	Config descriptor   `json:"config"`
	Layers []descriptor `json:"layers"`
}

// archive is what was written.
type archive struct {
	digest string
	images []image
}

// image is one architecture of it, with the bytes of its layers: as they are stored and
// fetched, and unpacked.
type image struct {
	arch                 string
	compressed, unpacked int64
}

// rewrite checks the OCI archive of a tool and writes it to out: with exactly the
// architectures that are asked for, in order, and without the time at which it was made.
// The tools list the images of an index in any order.
func rewrite(in, out, name string, arches []string, made time.Time) (archive, error) {
	from, err := read(in)
	if err != nil {
		return archive{}, fmt.Errorf("reading what was built: %w", err)
	}
	a, to, err := reorder(from, name, arches)
	if err != nil {
		return a, fmt.Errorf("checking what was built: %w", err)
	}
	// Beside it, so that nobody sees a half of it.
	f, err := os.CreateTemp(filepath.Dir(out), ".dupip-image-")
	if err != nil {
		return a, fmt.Errorf("writing the archive: %w", err)
	}
	defer os.Remove(f.Name())
	if err := errors.Join(to.write(f, made), f.Chmod(0o644), f.Close()); err != nil {
		return a, fmt.Errorf("writing the archive: %w", err)
	}
	return a, os.Rename(f.Name(), out)
}

// layout is an OCI image layout: the files of an archive by their paths.
type layout map[string][]byte

// blob finds what d describes.
func (l layout) blob(d descriptor) ([]byte, error) {
	data, ok := l[blobPath(d.Digest)]
	if !ok {
		return nil, fmt.Errorf("blob %s is missing", d.Digest)
	}
	if digestOf(data) != d.Digest || int64(len(data)) != d.Size {
		return nil, fmt.Errorf("blob %s is damaged", d.Digest)
	}
	return data, nil
}

func (l layout) decode(d descriptor, v any) error {
	data, err := l.blob(d)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}

// add puts a blob in and describes it.
func (l layout) add(mediaType string, data []byte) descriptor {
	d := descriptor{MediaType: mediaType, Digest: digestOf(data), Size: int64(len(data))}
	l[blobPath(d.Digest)] = data
	return d
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func blobPath(digest string) string {
	return "blobs/" + strings.Replace(digest, ":", "/", 1)
}

// reorder makes a layout with the images of another.
func reorder(from layout, name string, arches []string) (archive, layout, error) {
	var a archive
	var top, list index
	if err := json.Unmarshal(from["index.json"], &top); err != nil {
		return a, nil, fmt.Errorf("decoding index.json: %w", err)
	}
	if len(top.Manifests) != 1 || top.Manifests[0].MediaType != indexType {
		return a, nil, errors.New("it does not hold one index of images")
	}
	if err := from.decode(top.Manifests[0], &list); err != nil {
		return a, nil, fmt.Errorf("decoding the index: %w", err)
	}
	to := layout{"oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`)}
	sorted := index{SchemaVersion: 2, MediaType: indexType}
	for _, arch := range arches {
		i := slices.IndexFunc(list.Manifests, func(d descriptor) bool {
			return d.MediaType == manifestType && d.Platform != nil && *d.Platform == platform{arch, "linux"}
		})
		if i < 0 {
			return a, nil, fmt.Errorf("it has no image for linux/%s", arch)
		}
		img, err := from.move(list.Manifests[i], to)
		if err != nil {
			return a, nil, err
		}
		img.arch = arch
		a.images = append(a.images, img)
		sorted.Manifests = append(sorted.Manifests, list.Manifests[i])
	}
	data, err := json.Marshal(sorted)
	if err != nil {
		return a, nil, err
	}
	d := to.add(indexType, data)
	a.digest = d.Digest
	d.Annotations = map[string]string{nameKey: name}
	to["index.json"], err = json.Marshal(index{SchemaVersion: 2, MediaType: indexType, Manifests: []descriptor{d}})
	return a, to, err
}

// move adds to another layout the image that d describes.
func (l layout) move(d descriptor, to layout) (image, error) {
	var img image
	var m manifest
	if err := l.decode(d, &m); err != nil {
		return img, fmt.Errorf("decoding a manifest: %w", err)
	}
	for _, part := range slices.Concat([]descriptor{d, m.Config}, m.Layers) {
		data, err := l.blob(part)
		if err != nil {
			return img, err
		}
		to.add(part.MediaType, data)
	}
	for _, layer := range m.Layers {
		data, _ := l.blob(layer)
		unzip, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return img, fmt.Errorf("unpacking a layer: %w", err)
		}
		n, err := io.Copy(io.Discard, unzip)
		if err != nil {
			return img, fmt.Errorf("unpacking a layer: %w", err)
		}
		img.compressed += layer.Size
		img.unpacked += n
	}
	return img, nil
}

func read(path string) (layout, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	l := layout{}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return l, nil
		}
		if err != nil {
			return nil, err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if l[h.Name], err = io.ReadAll(r); err != nil {
			return nil, err
		}
	}
}

func (l layout) write(out io.Writer, made time.Time) error {
	w := tar.NewWriter(out)
	for _, path := range slices.Sorted(maps.Keys(l)) {
		h := tar.Header{Name: path, Mode: 0o644, Size: int64(len(l[path])), ModTime: made}
		if err := w.WriteHeader(&h); err != nil {
			return err
		}
		if _, err := w.Write(l[path]); err != nil {
			return err
		}
	}
	return w.Close()
}

// print says what was made, and how to bring it to where it is run.
func (a archive) print(w io.Writer, o options) {
	version := o.version
	if version == "" {
		version = "unknown"
	}
	fmt.Fprintf(w, "%s, version %s, in %s\n  %s\n", o.name, version, o.output, a.digest)
	for _, img := range a.images {
		fmt.Fprintf(w, "  linux/%s: %.1f MB, unpacked %.1f MB\n", img.arch, float64(img.compressed)/1e6, float64(img.unpacked)/1e6)
	}
	to := o.name
	if strings.HasPrefix(to, "localhost/") {
		to = "REGISTRY/" + strings.TrimPrefix(to, "localhost/")
	}
	if _, err := exec.LookPath("skopeo"); err != nil {
		if _, err := exec.LookPath("buildah"); err == nil {
			fmt.Fprintf(w, "push it: buildah manifest create %s && buildah manifest add --all %[1]s oci-archive:%s && buildah manifest push --all %[1]s docker://%[1]s\n", to, o.output)
			return
		}
	}
	fmt.Fprintf(w, "push it: skopeo copy --all oci-archive:%s docker://%s\n", o.output, to)
}
