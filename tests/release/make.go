package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/dupip/dupip/tests/compile"
	"github.com/dupip/dupip/tests/helm"
	"github.com/dupip/dupip/tests/lab"
)

// nfpm makes packages. It is built from source by the go command.
const nfpm = "github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.44.1"

// make makes the files of a release in an empty folder. Without a key nothing is signed.
func (r release) make(ctx context.Context, key string) error {
	started := time.Now()
	src, err := r.source(ctx)
	if err != nil {
		return err
	}
	// Without a key somebody compares an old release with its sources: vulnerabilities found since must not stop that.
	if key == "" {
		fmt.Fprintln(os.Stderr, "neither checked for vulnerabilities nor signed: KEY=cosign.key names a key of cosign")
	} else if _, err := output(ctx, "", "env", "DUPIP_DATABASE=required", "tests/vulncheck.sh"); err != nil {
		return err
	}
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return err
	}
	if there, err := os.ReadDir(r.dir); err != nil || len(there) > 0 {
		return errors.Join(err, fmt.Errorf("%s must be an empty folder: remove what is in it, or name another with RELEASE=", r.dir))
	}
	work, err := os.MkdirTemp("", "dupip-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)

	if _, err := output(ctx, "", "go", "run", "-C", "tests", "./image/build", "-name", "localhost/dupip:"+r.version, "-version", r.version, "-o", r.path(r.image())); err != nil {
		return err
	}
	if err := r.makePlugin(ctx, work, src); err != nil {
		return err
	}
	if err := r.makePackages(ctx, work); err != nil {
		return err
	}
	if err := r.makeChart(ctx, work, src.Created); err != nil {
		return err
	}
	programs, err := r.programs()
	if err != nil {
		return err
	}
	if err := r.derive(programs, times{started.UTC(), time.Now().UTC()}, r.write); err != nil {
		return err
	}
	// A folder of the checkout that git does not ignore makes it another one.
	if _, err := r.source(ctx); err != nil {
		return fmt.Errorf("%w (is %s a part of the checkout? RELEASE= names a folder elsewhere)", err, r.dir)
	}
	if key == "" {
		return nil
	}
	return r.sign(ctx, key)
}

// source returns the sources, if they are those of the version. No time but the commit's is in any file.
func (r release) source(ctx context.Context) (compile.Source, error) {
	if err := os.Unsetenv("SOURCE_DATE_EPOCH"); err != nil {
		return compile.Source{}, err
	}
	src := compile.SourceOf(ctx)
	if src.Revision == "" {
		return src, errors.New("a release needs git, and a checkout that belongs to you")
	}
	if strings.HasSuffix(src.Revision, "-dirty") {
		return src, errors.New("files differ from the commit: commit them, or remove them")
	}
	tags, err := exec.CommandContext(ctx, "git", "tag", "--points-at", "HEAD").Output()
	if err != nil {
		return src, fmt.Errorf("listing tags: %w", err)
	}
	// Go writes the version that it finds in the tags into the programs.
	if tag := "v" + r.version; strings.TrimSpace(string(tags)) != tag {
		return src, fmt.Errorf("the commit needs the tag %s, and no other: git tag -a %s", tag, tag)
	}
	return src, os.Setenv("SOURCE_DATE_EPOCH", strconv.FormatInt(src.Created.Unix(), 10))
}

// makePlugin makes archives of kubectl-dupip.
func (r release) makePlugin(ctx context.Context, work string, src compile.Source) error {
	license, err := os.ReadFile("LICENSE")
	if err != nil {
		return err
	}
	for _, system := range systems {
		for _, arch := range arches {
			program, err := compile.Program(ctx, filepath.Join(work, pluginName), "cmd/"+pluginName, system, arch, r.version, src)
			if err != nil {
				return err
			}
			archive, err := tarGz(map[string][]byte{pluginName: program, "LICENSE": license}, src.Created)
			if err != nil {
				return err
			}
			if err := r.write(r.plugin(system, arch), archive); err != nil {
				return err
			}
		}
	}
	return nil
}

// makePackages makes packages for hosts without Kubernetes. Their program is that of the image.
func (r release) makePackages(ctx context.Context, work string) error {
	programs, err := r.imagePrograms()
	if err != nil {
		return err
	}
	path, err := lab.BuildCached(os.TempDir(), nfpm)
	if err != nil {
		return err
	}
	manual, err := makeManual(ctx, work)
	if err != nil {
		return err
	}
	for _, p := range programs {
		if p.name != "dupip" {
			continue
		}
		file := filepath.Join(work, p.name)
		if err := os.WriteFile(file, p.content, 0o755); err != nil {
			return err
		}
		for packager, name := range map[string]string{"deb": r.deb(p.arch), "rpm": r.rpm(p.arch)} {
			_, err := output(ctx, "", "env", "PROGRAM="+file, "VERSION="+r.version, "ARCH="+p.arch, "MANUAL="+manual,
				path, "package", "--config", "deploy/systemd/nfpm.yaml", "--packager", packager, "--target", r.path(name))
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// makeManual makes the manual pages and returns their folder.
func makeManual(ctx context.Context, work string) (string, error) {
	manual := filepath.Join(work, "manual")
	if err := os.Mkdir(manual, 0o755); err != nil {
		return "", err
	}
	if _, err := output(ctx, "", "go", "run", "-tags", "dupip_manual", "./cmd/dupip", manual); err != nil {
		return "", err
	}
	pages, err := filepath.Glob(filepath.Join(manual, "*.8"))
	if err != nil {
		return "", err
	}
	_, err = output(ctx, "", append([]string{"gzip", "-9n"}, pages...)...)
	return manual, err
}

// makeChart makes the chart's archive. Helm writes the time of the build into it, which is replaced.
func (r release) makeChart(ctx context.Context, work string, created time.Time) error {
	if _, err := helm.Run(ctx, "", "package", "deploy/chart", "--version", r.version, "--app-version", r.version, "--destination", work); err != nil {
		return fmt.Errorf("packing the chart: %w", err)
	}
	archive, err := os.ReadFile(filepath.Join(work, r.chart()))
	if err != nil {
		return err
	}
	files, err := untarGz(archive)
	if err != nil {
		return err
	}
	if archive, err = tarGz(files, created); err != nil {
		return err
	}
	return r.write(r.chart(), archive)
}

// derive calls use with each file of which the content follows from the files that use has had before.
func (r release) derive(programs []program, built times, use func(name string, content []byte) error) error {
	for _, f := range []struct {
		name    string
		content func() ([]byte, error)
	}{
		{krewFile, r.krew},
		{r.sbom(), func() ([]byte, error) { return r.modules(programs) }},
		{sumsFile, r.sums},
		{provenanceFile, func() ([]byte, error) { return r.provenance(programs, built) }},
	} {
		content, err := f.content()
		if err != nil {
			return err
		}
		if err := use(f.name, content); err != nil {
			return err
		}
	}
	return nil
}

// output returns what a program prints, of which the input may be a file. An error has all that it printed.
func output(ctx context.Context, input string, args ...string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if input != "" {
		f, err := os.Open(input)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		cmd.Stdin = f
	}
	if err := cmd.Run(); err != nil {
		// The output may be an archive.
		return nil, fmt.Errorf("%s: %w\n%.4000s%s", strings.Join(args, " "), err, strings.ToValidUTF8(stdout.String(), ""), stderr.Bytes())
	}
	return stdout.Bytes(), nil
}
