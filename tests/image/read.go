package image

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
	"io/fs"
	"os"
	"strings"
)

// Archive is what an OCI archive holds.
type Archive struct {
	// Name and Digest are those of the index of images.
	Name, Digest string
	Images       []Image
}

// Image is the image of one platform.
type Image struct {
	Platform string // linux/amd64
	Created  string // RFC 3339
	Config   Config
	// Size is that of the layers as they are fetched, in bytes.
	Size  int64
	Files []File
}

// Config is what a container of an image runs.
type Config struct {
	User       string
	Env        []string
	Entrypoint []string
	Cmd        []string
	WorkingDir string
	Labels     map[string]string
}

// File is one entry of the layers, in their order.
type File struct {
	Path     string
	Mode     fs.FileMode
	UID, GID int
	ModTime  int64 // seconds since 1970
	Data     []byte
}

// Read reads the archive at path, which holds one index of images. Everything in it has
// to be what its digest says.
func Read(path string) (*Archive, error) {
	blobs, top, err := readBlobs(path)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	var index struct {
		Manifests []struct {
			MediaType   string
			Digest      string
			Annotations map[string]string
		}
	}
	if err := json.Unmarshal(top, &index); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	if len(index.Manifests) != 1 {
		return nil, fmt.Errorf("reading %s: %d entries in index.json, want 1", path, len(index.Manifests))
	}
	entry := index.Manifests[0]
	if want := "application/vnd.oci.image.index.v1+json"; entry.MediaType != want {
		return nil, fmt.Errorf("reading %s: a %s, want %s", path, entry.MediaType, want)
	}
	a := &Archive{Name: entry.Annotations["org.opencontainers.image.ref.name"], Digest: entry.Digest}
	var list struct {
		Manifests []struct {
			Digest   string
			Platform struct{ OS, Architecture string }
		}
	}
	if err := blobs.decode(entry.Digest, &list); err != nil {
		return nil, err
	}
	for _, m := range list.Manifests {
		img, err := blobs.image(m.Digest)
		if err != nil {
			return nil, fmt.Errorf("reading image %s: %w", m.Digest, err)
		}
		if platform := m.Platform.OS + "/" + m.Platform.Architecture; platform != img.Platform {
			return nil, fmt.Errorf("reading image %s: it is for %s, the index says %s", m.Digest, img.Platform, platform)
		}
		a.Images = append(a.Images, img)
	}
	return a, nil
}

type blobs map[string][]byte

func readBlobs(path string) (blobs, []byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	all, top := blobs{}, []byte(nil)
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all, top, nil
		}
		if err != nil {
			return nil, nil, err
		}
		data, err := io.ReadAll(r)
		if err != nil {
			return nil, nil, err
		}
		if sum, ok := strings.CutPrefix(h.Name, "blobs/sha256/"); ok {
			all["sha256:"+sum] = data
		} else if h.Name == "index.json" {
			top = data
		}
	}
}

func (b blobs) get(digest string) ([]byte, error) {
	data, ok := b[digest]
	if sum := sha256.Sum256(data); !ok || "sha256:"+hex.EncodeToString(sum[:]) != digest {
		return nil, fmt.Errorf("blob %s is missing or damaged", digest)
	}
	return data, nil
}

func (b blobs) decode(digest string, v any) error {
	data, err := b.get(digest)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}

func (b blobs) image(digest string) (Image, error) {
	var manifest struct {
		Config struct{ Digest string }
		Layers []struct {
			Digest string
			Size   int64
		}
	}
	var config struct {
		OS, Architecture string
		Created          string
		Config           Config
		RootFS           struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	if err := b.decode(digest, &manifest); err != nil {
		return Image{}, err
	}
	if err := b.decode(manifest.Config.Digest, &config); err != nil {
		return Image{}, err
	}
	img := Image{Platform: config.OS + "/" + config.Architecture, Created: config.Created, Config: config.Config}
	for i, layer := range manifest.Layers {
		zipped, err := b.get(layer.Digest)
		if err != nil {
			return img, err
		}
		unzip, err := gzip.NewReader(bytes.NewReader(zipped))
		if err != nil {
			return img, err
		}
		data, err := io.ReadAll(unzip)
		if err != nil {
			return img, err
		}
		sum := sha256.Sum256(data)
		if i >= len(config.RootFS.DiffIDs) || config.RootFS.DiffIDs[i] != "sha256:"+hex.EncodeToString(sum[:]) {
			return img, fmt.Errorf("layer %s is not the one of the configuration", layer.Digest)
		}
		files, err := readLayer(data)
		if err != nil {
			return img, err
		}
		img.Files = append(img.Files, files...)
		img.Size += layer.Size
	}
	return img, nil
}

func readLayer(data []byte) ([]File, error) {
	var files []File
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(r)
		if err != nil {
			return nil, err
		}
		files = append(files, File{
			Path: h.Name, Mode: h.FileInfo().Mode(), UID: h.Uid, GID: h.Gid, ModTime: h.ModTime.Unix(), Data: data,
		})
	}
}
