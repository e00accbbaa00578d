// Package apt takes packages of any of Debian's suites, and installs none.
package apt

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Lists are the lists of packages that apt's commands read. The zero value is the machine's.
type Lists struct {
	// options make them those of another suite than the machine's, which everybody may update.
	options []string
}

// Of returns today's lists of one of Debian's suites, kept in a folder, or the machine's if suite is empty. The mirror is the
// machine's.
func Of(suite, folder string) (Lists, error) {
	if suite == "" {
		return Lists{}, nil
	}
	out, err := exec.Command("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Label: Debian").Output()
	if err != nil {
		return Lists{}, fmt.Errorf("query apt for a mirror of Debian: %w", err)
	}
	mirror, _, _ := strings.Cut(string(out), "\n")
	if mirror == "" {
		return Lists{}, errors.New("apt knows no mirror of Debian: run apt-get update")
	}
	for _, dir := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(folder, dir), 0o755); err != nil {
			return Lists{}, err
		}
	}
	sources := filepath.Join(folder, "sources.list")
	line := fmt.Sprintf("deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n", mirror, suite)
	l := Lists{options: []string{
		"-o", "Dir::Etc::SourceList=" + sources, "-o", "Dir::Etc::SourceParts=/dev/null",
		"-o", "Dir::State::Lists=" + filepath.Join(folder, "lists"), "-o", "Dir::Cache=" + filepath.Join(folder, "cache"),
	}}
	if err := os.WriteFile(sources, []byte(line), 0o644); err != nil {
		return Lists{}, err
	}
	return l, l.Update()
}

// MayUpdate returns whether this user may update the lists.
func (l Lists) MayUpdate() bool { return len(l.options) > 0 || os.Geteuid() == 0 }

// Update gets today's lists.
func (l Lists) Update() error {
	if out, err := l.command("apt-get", "update", "-qq").CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get update: %w\n%s", err, out)
	}
	return nil
}

// Field is a field of a package, as its author wrote it, or empty.
func (l Lists) Field(name, field string) (string, error) {
	out, err := l.command("apt-cache", "show", "--no-all-versions", name).Output()
	if err != nil {
		return "", fmt.Errorf("query apt for %s: %w", name, err)
	}
	for line := range strings.Lines(string(out)) {
		if value, ok := strings.CutPrefix(line, field+": "); ok {
			return strings.TrimSpace(value), nil
		}
	}
	return "", nil
}

// Fetch downloads packages into a folder.
func (l Lists) Fetch(dir string, packages ...string) error {
	cmd := l.command("apt-get", append([]string{"download", "-q"}, packages...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("download %v, perhaps after apt-get update: %w\n%s", packages, err, out)
	}
	return nil
}

func (l Lists) command(name string, args ...string) *exec.Cmd {
	return exec.Command(name, append(l.options[:len(l.options):len(l.options)], args...)...)
}
