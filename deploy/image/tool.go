package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

//go:embed Containerfile
var containerfile []byte

// job is one build.
type job struct {
	work   string // a folder that is removed afterwards
	root   string // the context: a root for each architecture
	output string
	name   string
	arches []string
	labels []string
	time   time.Time
}

// containerfile writes the Containerfile outside of the context.
func (j job) containerfile() (string, error) {
	path := filepath.Join(j.work, "Containerfile")
	return path, os.WriteFile(path, containerfile, 0o644)
}

func (j job) platforms() string {
	return "linux/" + strings.Join(j.arches, ",linux/")
}

func (j job) epoch() string { return strconv.FormatInt(j.time.Unix(), 10) }

// chooseTool finds what builds images: the one that was asked for, else buildah, which
// needs no daemon, else docker.
func chooseTool(ctx context.Context, name string) (func(context.Context, job) error, error) {
	has := func(tool string) bool {
		_, err := exec.LookPath(tool)
		return (name == "" || name == tool) && err == nil
	}
	switch {
	case name != "" && name != "buildah" && name != "docker":
		return nil, fmt.Errorf("unknown tool %q: buildah and docker are supported", name)
	case has("buildah"):
		return buildah, nil
	case has("docker"):
		if err := command(ctx, nil, "docker", "buildx", "version"); err != nil {
			return nil, errors.New("this docker has no buildx, without which it builds for no other architecture: install docker-buildx, or buildah")
		}
		return docker, nil
	case name != "":
		return nil, fmt.Errorf("%s was not found: install it", name)
	}
	return nil, errors.New("neither buildah nor docker was found: install one (apt-get install buildah)")
}

// buildah builds in a storage of its own, by the driver that works everywhere, and leaves
// nothing in that of the user.
func buildah(ctx context.Context, j job) error {
	file, err := j.containerfile()
	if err != nil {
		return err
	}
	storage, policy := filepath.Join(j.work, "storage.conf"), filepath.Join(j.work, "policy.json")
	graph, state := filepath.Join(j.work, "graph"), filepath.Join(j.work, "state")
	for path, text := range map[string]string{
		storage: fmt.Sprintf("[storage]\ndriver = \"vfs\"\ngraphroot = %q\nrunroot = %q\nrootless_storage_path = %[1]q\n", graph, state),
		// What was built here needs no signature.
		policy: `{"default":[{"type":"insecureAcceptAnything"}]}`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	env := []string{
		"CONTAINERS_STORAGE_CONF=" + storage,
		// A user's configuration has no say, and nothing is left beside it.
		"HOME=" + j.work, "XDG_CONFIG_HOME=" + j.work, "XDG_DATA_HOME=" + j.work, "XDG_RUNTIME_DIR=" + state,
		"TMPDIR=" + j.work,
		"BUILDAH_FORMAT=oci", "BUILDAH_LAYERS=false",
	}
	if err := os.Mkdir(state, 0o700); err != nil {
		return err
	}
	call := func(args ...string) error {
		return command(ctx, env, "buildah", append([]string{"--storage-driver", "vfs", "--root", graph, "--runroot", state}, args...)...)
	}
	args := []string{
		"build", "--file", file, "--platform", j.platforms(), "--manifest", j.name,
		// No step runs a program.
		"--isolation", "chroot",
		// Neither the time nor the tool's version is in the image.
		"--timestamp", j.epoch(), "--identity-label=false", "--omit-history",
		"--signature-policy", policy,
	}
	for _, label := range j.labels {
		args = append(args, "--label", label)
	}
	if err := call(append(args, j.root)...); err != nil {
		return err
	}
	return call("manifest", "push", "--all", "--signature-policy", policy, j.name, "oci-archive:"+j.output+":"+j.name)
}

// docker builds by buildx. It needs a builder that writes OCI archives.
func docker(ctx context.Context, j job) error {
	file, err := j.containerfile()
	if err != nil {
		return err
	}
	args := []string{
		"buildx", "build", "--file", file, "--platform", j.platforms(),
		// Attestations hold the time of the build.
		"--provenance=false", "--sbom=false",
		"--output", "type=oci,dest=" + j.output + ",name=" + j.name + ",rewrite-timestamp=true",
	}
	for _, label := range j.labels {
		args = append(args, "--label", label)
	}
	err = command(ctx, []string{"SOURCE_DATE_EPOCH=" + j.epoch()}, "docker", append(args, j.root)...)
	if err != nil && strings.Contains(err.Error(), "not supported for the docker driver") {
		return fmt.Errorf("%w\nrun docker buildx create --use for a builder that writes such an archive, or install buildah", err)
	}
	return err
}
