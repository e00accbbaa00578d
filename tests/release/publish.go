package main

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
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
	if _, err := os.Stat(r.path(r.image())); err != nil {
		return fmt.Errorf("%s has no release %s: make release VERSION=%[2]s KEY=%s makes it", r.dir, r.version, key)
	}
	dry := to == ""
	if _, err := exec.LookPath("gh"); err != nil && !dry {
		return errors.New("gh, which makes the release on GitHub, is missing: install it, and log in by \"gh auth login\"")
	}
	if err := r.verifyOwn(ctx, key); err != nil {
		return err
	}
	if dry {
		own, end, err := serve(newRegistry())
		if err != nil {
			return err
		}
		defer end()
		to = own + "/dupip"
	}
	p, err := r.push(ctx, to)
	if err != nil {
		return err
	}
	if err := r.signPushed(ctx, key, p.image, p.chart); err != nil {
		return err
	}
	fmt.Printf("image  %s\nchart  %s\n", p.image, p.chart)
	if !dry {
		if _, err := output(ctx, "", r.onGitHub()...); err != nil {
			return err
		}
		fmt.Printf("\nLeft to do: %s\n", krewIndex)
		return nil
	}
	fmt.Printf("\nThis was a dry run, with a registry of its own. To publish, after \"docker login ghcr.io\" and \"gh auth login\":\n"+
		"  git push origin v%s\n  make publish VERSION=%[1]s KEY=%s REGISTRY=ghcr.io/dupip\nThen these are there, too:\n", r.version, key)
	for _, name := range r.everything() {
		fmt.Println(" ", r.download(name))
	}
	fmt.Printf("Left to do by hand: %s\n", krewIndex)
	return nil
}

const krewIndex = "a pull request to https://github.com/kubernetes-sigs/krew-index, with " + krewFile + " as plugins/dupip.yaml"

// onGitHub is the command that makes the release on GitHub. The tag must be there.
func (r release) onGitHub() []string {
	args := []string{"gh", "release", "create", "v" + r.version, "--verify-tag", "--title=v" + r.version, "--notes=See CHANGELOG.md."}
	if strings.Contains(r.version, "-") {
		args = append(args, "--prerelease") // else it would be the latest
	}
	for _, name := range r.everything() {
		args = append(args, r.path(name))
	}
	return args
}

// verifyOwn verifies the release by the public key that belongs to a private one.
func (r release) verifyOwn(ctx context.Context, key string) error {
	path, err := cosign.Path()
	if err != nil {
		return err
	}
	public, err := output(ctx, "", path, "public-key", "--key", key)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "dupip-publish-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "cosign.pub")
	if err := os.WriteFile(file, public, 0o600); err != nil {
		return err
	}
	if err := r.verify(ctx, file); err != nil {
		return fmt.Errorf("%s is not as KEY=%s has signed it: %w", r.dir, key, err)
	}
	return nil
}

// signPushed signs what has been pushed. The signature says the version, so that a tag that leads to another one is noticed.
func (r release) signPushed(ctx context.Context, key string, refs ...string) error {
	path, err := cosign.Path()
	if err != nil {
		return err
	}
	for _, ref := range refs {
		if _, err := output(ctx, "", path, "sign", "--key", key, "--tlog-upload=false", "--yes", "--recursive", "--annotations", "version="+r.version, ref); err != nil {
			return err
		}
	}
	return nil
}

func newRegistry() http.Handler { return registry.New(registry.Logger(log.New(io.Discard, "", 0))) }

// serve serves a registry until end is called. This process and those that it starts trust its certificate.
func serve(registry http.Handler) (host string, end func(), err error) {
	dir, err := os.MkdirTemp("", "dupip-publish-")
	if err != nil {
		return "", nil, err
	}
	server := httptest.NewUnstartedServer(registry)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // each hasty client would be a line
	server.StartTLS()
	end = func() { server.Close(); _ = os.RemoveAll(dir) }
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "ca.crt"), certificate, 0o600), os.Setenv("SSL_CERT_DIR", dir)); err != nil {
		end()
		return "", nil, err
	}
	return server.Listener.Addr().String(), end, nil
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
	// With the user's credentials, which helm.Run does not read.
	said, err := exec.CommandContext(ctx, path, "push", r.path(r.chart()), "oci://"+to+"/charts").CombinedOutput()
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
