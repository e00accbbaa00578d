package main

import (
	"bytes"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// pluginName is what kubectl looks for.
const pluginName = "kubectl-dupip"

// program is one of those that are in the image or in an archive.
type program struct {
	name, system, arch string
	content            []byte
	info               *debug.BuildInfo // what Go wrote into it
}

func newProgram(name, system, arch string, content []byte) (program, error) {
	info, err := buildinfo.Read(bytes.NewReader(content))
	if err != nil {
		return program{}, fmt.Errorf("reading %s for %s/%s: %w", name, system, arch, err)
	}
	return program{name, system, arch, content, info}, nil
}

// id is the program's name in the list of modules.
func (p program) id() string { return p.name + "_" + p.system + "_" + p.arch }

// setting returns one of the settings of the build.
func (p program) setting(key string) string {
	for _, s := range p.info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// commit returns of what and when all programs are.
func commit(programs []program) (revision string, created time.Time, err error) {
	revision = programs[0].setting("vcs.revision")
	created, err = time.Parse(time.RFC3339, programs[0].setting("vcs.time"))
	return revision, created, err
}

// programs returns all programs of the release, in a fixed order.
func (r release) programs() ([]program, error) {
	programs, err := r.imagePrograms()
	if err != nil {
		return nil, err
	}
	for _, system := range systems {
		for _, arch := range arches {
			archive, err := r.read(r.plugin(system, arch))
			if err != nil {
				return nil, err
			}
			files, err := untarGz(archive)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", r.plugin(system, arch), err)
			}
			p, err := newProgram(pluginName, system, arch, files[pluginName])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", r.plugin(system, arch), err)
			}
			programs = append(programs, p)
		}
	}
	return programs, nil
}

// imagePrograms returns the programs of the image. Each part of it must have its digest.
func (r release) imagePrograms() ([]program, error) {
	programs, err := r.unpackImage()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.image(), err)
	}
	return programs, nil
}

func (r release) unpackImage() (programs []program, err error) {
	archive, err := os.Open(r.path(r.image()))
	if err != nil {
		return nil, err
	}
	defer archive.Close()
	parts, err := untar(archive)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "dupip-release-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	for name, content := range parts {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, content, 0o600)); err != nil {
			return nil, err
		}
	}
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, err
	}
	if err := validate.Index(top); err != nil {
		return nil, err
	}
	indexes, err := partial.FindIndexes(top, func(v1.Descriptor) bool { return true })
	if err != nil {
		return nil, err
	}
	if len(indexes) != 1 {
		return nil, fmt.Errorf("it has %d indexes, want 1", len(indexes))
	}
	images, err := partial.FindImages(indexes[0], func(v1.Descriptor) bool { return true })
	if err != nil {
		return nil, err
	}
	if len(images) != len(arches) {
		return nil, fmt.Errorf("it has %d images, want %d", len(images), len(arches))
	}
	for _, img := range images {
		config, err := img.ConfigFile()
		if err != nil {
			return nil, err
		}
		if v := config.Config.Labels["org.opencontainers.image.version"]; v != r.version {
			return nil, fmt.Errorf("the image for %s says that it has version %q", config.Architecture, v)
		}
		// All layers together.
		files, err := untar(mutate.Extract(img))
		if err != nil {
			return nil, err
		}
		for _, name := range []string{"dupip", "dupip-reporter"} {
			p, err := newProgram(name, config.OS, config.Architecture, files["usr/bin/"+name])
			if err != nil {
				return nil, err
			}
			programs = append(programs, p)
		}
	}
	return programs, nil
}
