package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/dupip/dupip/tests/cosign"
	"github.com/dupip/dupip/tests/helm"
)

// published is what is in a registry afterwards.
type published struct {
	image, chart string // references with digests
}

// publish pushes the image and the chart of a release to a registry such as ghcr.io/dupip, signs both there, and makes the release on GitHub,
// with all files. Without a registry it is a dry run: the registry is its own, nothing stays, and GitHub is not asked.
func (r release) publish(ctx context.Context, to, key string) error {
	if key == "" {
		return errors.New("KEY=cosign.key names the private key: what is published is signed")
	}
	files, err := filepath.Glob(filepath.Join(r.dir, "*"))
	if err != nil {
		return err
	}
	onGitHub := append([]string{"gh", "release", "create", "v" + r.version, "--verify-tag", "--title=v" + r.version, "--notes=See CHANGELOG.md."}, files...)
	if to == "" {
		own, end, err := ownRegistry()
		if err != nil {
			return err
		}
		defer end()
		if err := r.pushAndSign(ctx, own+"/dupip", key, os.Stdout); err != nil {
			return err
		}
		fmt.Printf("\nThis was a dry run, with a registry of its own. REGISTRY=ghcr.io/dupip publishes, and then runs:\n  %s\n", strings.Join(onGitHub, " "))
		return nil
	}
	if _, err := exec.LookPath("gh"); err != nil {
		return errors.New("gh, which makes the release on GitHub, is missing: install it, and log in by \"gh auth login\"")
	}
	if err := r.pushAndSign(ctx, to, key, os.Stdout); err != nil {
		return err
	}
	if _, err := output(ctx, "", onGitHub...); err != nil {
		return err
	}
	fmt.Println("\nLeft to do: a pull request to krew-index with krew-dupip.yaml.")
	return nil
}

// pushAndSign prints what is there then, and how to install it.
func (r release) pushAndSign(ctx context.Context, to, key string, out io.Writer) error {
	p, err := r.push(ctx, to)
	if err != nil {
		return err
	}
	path, err := cosign.Path()
	if err != nil {
		return err
	}
	for _, ref := range []string{p.image, p.chart} {
		args := []string{path, "sign", "--key", key, "--tlog-upload=false", "--yes", "--recursive"}
		if r.withoutTLS(to) {
			args = append(args, "--allow-http-registry")
		}
		if _, err := output(ctx, "", append(args, ref)...); err != nil {
			return err
		}
	}
	image, digest, _ := strings.Cut(p.image, "@")
	_, err = fmt.Fprintf(out, "image  %s\nchart  %s\n\nTo install it:\n  helm -n dupip install dupip oci://%s/charts/dupip --version %s \\\n    --set image.repository=%s --set image.digest=%s\n",
		p.image, p.chart, to, r.version, image, digest)
	return err
}

// ownRegistry is one in this process, until end is called.
func ownRegistry() (host string, end func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	go func() { _ = server.Serve(listener) }()
	return listener.Addr().String(), func() { _ = server.Close() }, nil
}

// withoutTLS reports whether a registry has a private address, as those of tests: the image goes there without TLS.
func (r release) withoutTLS(to string) bool {
	tag, err := name.NewTag(to + "/dupip:" + r.version)
	return err == nil && tag.Scheme() == "http"
}

var pushedDigest = regexp.MustCompile(`(?m)^Digest: (sha256:[0-9a-f]{64})$`)

// push pushes image and chart, with the credentials of docker login and helm registry login.
func (r release) push(ctx context.Context, to string) (p published, err error) {
	work, err := os.MkdirTemp("", "dupip-publish-")
	if err != nil {
		return p, err
	}
	defer os.RemoveAll(work)
	if _, err := output(ctx, "", "tar", "-C", work, "-xf", r.path(r.image())); err != nil {
		return p, err
	}
	archive, err := layout.ImageIndexFromPath(work)
	if err != nil {
		return p, fmt.Errorf("%s: %w", r.image(), err)
	}
	manifest, err := archive.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		return p, errors.Join(err, fmt.Errorf("%s has %d images, want one", r.image(), len(manifest.Manifests)))
	}
	index, err := archive.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		return p, fmt.Errorf("%s: %w", r.image(), err)
	}
	tag, err := name.NewTag(to + "/dupip:" + r.version)
	if err != nil {
		return p, fmt.Errorf("REGISTRY=%s: %w", to, err)
	}
	if err := remote.WriteIndex(tag, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return p, fmt.Errorf("pushing the image: %w", err)
	}
	p.image = tag.Repository.Name() + "@" + manifest.Manifests[0].Digest.String()

	path, err := helm.V4.Path()
	if err != nil {
		return p, err
	}
	args := []string{"push", r.path(r.chart()), "oci://" + to + "/charts"}
	if r.withoutTLS(to) {
		args = append(args, "--plain-http")
	}
	said, err := exec.CommandContext(ctx, path, args...).CombinedOutput() // with the user's credentials, which helm.Run does not read
	if err != nil {
		return p, fmt.Errorf("pushing the chart: %w\n%s", err, said)
	}
	digest := pushedDigest.FindStringSubmatch(string(said))
	if digest == nil {
		return p, fmt.Errorf("pushing the chart: no digest in %q", said)
	}
	p.chart = to + "/charts/dupip@" + digest[1]
	return p, nil
}
