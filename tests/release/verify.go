package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/dupip/dupip/tests/compile"
)

// verify says what is wrong with a release that was signed by the owner of a public key. It needs no network. Programs run only
// when their signature is right.
func (r release) verify(ctx context.Context, key string) error {
	if err := r.verifySignatures(ctx, key); err != nil {
		return err
	}
	if err := r.verifySums(); err != nil {
		return err
	}
	programs, err := r.programs()
	if err != nil {
		return err
	}
	for _, p := range programs {
		if err := r.verifyProgram(ctx, p, programs[0]); err != nil {
			return fmt.Errorf("%s: %w", p.id(), err)
		}
	}
	if err := r.verifyDerived(programs); err != nil {
		return err
	}
	if err := r.verifyPackages(ctx, programs); err != nil {
		return err
	}
	if err := r.verifyChart(); err != nil {
		return err
	}
	fmt.Printf("%s: version %s of commit %s is complete and as it was signed\n", r.dir, r.version, programs[0].setting("vcs.revision"))
	return nil
}

// verifySums compares the checksums with the files; there are no others.
func (r release) verifySums() error {
	known := r.everything()
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !slices.Contains(known, e.Name()) {
			return fmt.Errorf("%s is no part of a release", e.Name())
		}
	}
	want, err := r.read(sumsFile)
	if err != nil {
		return err
	}
	got, err := r.sums()
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(got)) {
		if !strings.Contains(string(want), line) {
			_, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
			return fmt.Errorf("%s is not what %s says", name, sumsFile)
		}
	}
	return nil
}

// verifyProgram checks how a program was built, and what it says if it runs on this machine.
func (r release) verifyProgram(ctx context.Context, p, first program) error {
	want := map[string]string{
		"-buildmode": "exe", "-compiler": "gc", "-trimpath": "true", "CGO_ENABLED": "0", "GOOS": p.system, "GOARCH": p.arch,
		"vcs": "git", "vcs.modified": "false", "vcs.revision": first.setting("vcs.revision"), "vcs.time": first.setting("vcs.time"),
	}
	want[map[string]string{"amd64": "GOAMD64", "arm64": "GOARM64"}[p.arch]] = map[string]string{"amd64": "v1", "arm64": "v8.0"}[p.arch]
	for _, s := range p.info.Settings {
		if want[s.Key] != s.Value {
			return fmt.Errorf("it was built with %s=%s, want %q", s.Key, s.Value, want[s.Key])
		}
		delete(want, s.Key)
	}
	if len(want) > 0 || p.setting("vcs.revision") == "" {
		return fmt.Errorf("it does not say how it was built: %v", want)
	}
	if got, want := p.info.Main.Path+"@"+p.info.Main.Version, compile.Module+"@v"+r.version; got != want {
		return fmt.Errorf("it is %s, want %s", got, want)
	}
	if p.info.GoVersion != first.info.GoVersion {
		return fmt.Errorf("it was built with %s, others with %s", p.info.GoVersion, first.info.GoVersion)
	}
	if p.system != runtime.GOOS || p.arch != runtime.GOARCH {
		return nil
	}
	dir, err := os.MkdirTemp("", "dupip-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, p.name)
	if err := os.WriteFile(path, p.content, 0o700); err != nil {
		return err
	}
	command := "version"
	if p.name == "dupip-reporter" {
		command = "--version"
	}
	out, err := exec.CommandContext(ctx, path, command).Output()
	if err != nil {
		return fmt.Errorf("running it: %w", err)
	}
	if !slices.Contains(strings.Fields(string(out)), r.version) {
		return fmt.Errorf("it says that it is %q", out)
	}
	return nil
}

// verifyDerived derives again what follows from other files. The times in the provenance are its own.
func (r release) verifyDerived(programs []program) error {
	provenance, err := r.read(provenanceFile)
	if err != nil {
		return err
	}
	var s struct {
		Predicate struct{ RunDetails struct{ Metadata times } }
	}
	if err := json.Unmarshal(provenance, &s); err != nil {
		return fmt.Errorf("%s: %w", provenanceFile, err)
	}
	return r.derive(programs, s.Predicate.RunDetails.Metadata, func(name string, want []byte) error {
		got, err := r.read(name)
		if err == nil && !bytes.Equal(got, want) {
			err = fmt.Errorf("%s does not describe the other files", name)
		}
		return err
	})
}

// verifyPackages checks that the packages have the program of the image.
func (r release) verifyPackages(ctx context.Context, programs []program) error {
	for _, p := range programs {
		if p.name != "dupip" {
			continue
		}
		files, err := r.packageFiles(ctx, p.arch)
		if err != nil {
			return err
		}
		if !bytes.Equal(files["usr/bin/dupip"], p.content) {
			return fmt.Errorf("the packages for %s do not have the program of the image", p.arch)
		}
	}
	return nil
}

// verifyChart checks the versions that the chart says.
func (r release) verifyChart() error {
	archive, err := r.read(r.chart())
	if err != nil {
		return err
	}
	files, err := untarGz(archive)
	if err != nil {
		return fmt.Errorf("%s: %w", r.chart(), err)
	}
	var chart struct{ Name, Version, AppVersion string }
	if err := yaml.Unmarshal(files["dupip/Chart.yaml"], &chart); err != nil {
		return fmt.Errorf("%s: %w", r.chart(), err)
	}
	if chart.Name != "dupip" || chart.Version != r.version || chart.AppVersion != r.version {
		return errors.New(r.chart() + " says that it is " + fmt.Sprint(chart))
	}
	return nil
}
