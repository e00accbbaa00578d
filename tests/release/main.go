// Command release makes the files of a release, verifies and publishes them, as `make release`, `make verify-release` and `make publish` do;
// deploy/RELEASE.md explains them. It runs in the folder tests.
//
// Equal commits and versions of Go make equal files, but for the provenance and the signatures. What is derived from other files of a
// release (checksums, the list of modules, the manifest for krew), verifying derives again and compares.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
)

const usage = "usage: release make|verify|publish -version VERSION [-key FILE] [-o FOLDER] [-registry HOST/PATH]"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	var r release
	flags := flag.NewFlagSet("release "+args[0], flag.ContinueOnError)
	flags.StringVar(&r.version, "version", "", "such as 0.2.0 or 0.3.0-rc.1; the commit has the tag v0.2.0")
	flags.StringVar(&r.dir, "o", "bin/release", "the `folder` of the files")
	key := flags.String("key", "", "a `file`: cosign's private key to make a release, the public one to verify it")
	registry := flags.String("registry", "", "where to publish, such as ghcr.io/dupip; empty for a dry run with a registry of its own")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return errors.New(usage)
	}
	if !version.MatchString(r.version) {
		return fmt.Errorf("VERSION=%s: a release has a version such as 0.2.0 or 0.3.0-rc.1", r.version)
	}
	// All paths are from the root of the repository.
	if err := os.Chdir(".."); err != nil {
		return err
	}
	switch args[0] {
	case "make":
		return r.make(ctx, *key)
	case "verify":
		return r.verify(ctx, *key)
	case "publish":
		return r.publish(ctx, *registry, *key)
	}
	return errors.New(usage)
}

var version = regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.]+)?$`)

// release names the files.
type release struct {
	version string // without v
	dir     string
}

// Architectures, and what kubectl runs on.
var (
	arches  = []string{"amd64", "arm64"}
	rpmArch = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}
	systems = []string{"darwin", "linux"}
)

func (r release) image() string          { return "dupip-image_" + r.version + ".tar" }
func (r release) chart() string          { return "dupip-" + r.version + ".tgz" }
func (r release) sbom() string           { return "dupip_" + r.version + ".cdx.json" }
func (r release) deb(arch string) string { return "dupip_" + r.version + "_" + arch + ".deb" }
func (r release) rpm(arch string) string {
	return "dupip-" + r.version + "-1." + rpmArch[arch] + ".rpm"
}

func (r release) plugin(system, arch string) string {
	return "kubectl-dupip_" + r.version + "_" + system + "_" + arch + ".tar.gz"
}

// Names that do not depend on the version.
const (
	krewFile       = "krew-dupip.yaml"
	sumsFile       = "SHA256SUMS"
	provenanceFile = "provenance.json"
	signature      = ".sig" // follows the name of what is signed
)

// files are those that sumsFile lists, which are equal for equal commits.
func (r release) files() []string {
	names := []string{r.image(), r.chart(), r.sbom(), krewFile}
	for _, arch := range arches {
		names = append(names, r.deb(arch), r.rpm(arch))
		for _, system := range systems {
			names = append(names, r.plugin(system, arch))
		}
	}
	return names
}

// everything is files and what is about them.
func (r release) everything() []string {
	return append(r.files(), sumsFile, sumsFile+signature, provenanceFile, provenanceFile+signature)
}

func (r release) path(name string) string { return filepath.Join(r.dir, name) }

func (r release) read(name string) ([]byte, error) { return os.ReadFile(r.path(name)) }

func (r release) write(name string, content []byte) error {
	return os.WriteFile(r.path(name), content, 0o644)
}
