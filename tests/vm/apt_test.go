package vm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// aptLists are the lists of packages that apt's commands read.
type aptLists struct {
	// options make them those of another suite than the machine's, which everybody may update; without, they are the machine's.
	options []string
}

// listsOf returns the lists of one of Debian's suites, kept in a folder, or the machine's if suite is empty. The mirror is the machine's.
func listsOf(suite, folder string) (aptLists, error) {
	if suite == "" {
		return aptLists{}, nil
	}
	out, err := exec.Command("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Label: Debian").Output()
	if err != nil {
		return aptLists{}, fmt.Errorf("query apt for a mirror of Debian (set %s to an unpacked kernel package where there is no apt): %w", kernelVariable, err)
	}
	mirror, _, _ := strings.Cut(string(out), "\n")
	if mirror == "" {
		return aptLists{}, errors.New("apt knows no mirror of Debian: run apt-get update")
	}
	for _, dir := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(folder, dir), 0o755); err != nil {
			return aptLists{}, err
		}
	}
	sources := filepath.Join(folder, "sources.list")
	line := fmt.Sprintf("deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n", mirror, suite)
	l := aptLists{options: []string{
		"-o", "Dir::Etc::SourceList=" + sources, "-o", "Dir::Etc::SourceParts=/dev/null", "-o", "Dir::State::Lists=" + filepath.Join(folder, "lists"),
		"-o", "Dir::Cache=" + filepath.Join(folder, "cache"),
	}}
	if err := os.WriteFile(sources, []byte(line), 0o644); err != nil {
		return aptLists{}, err
	}
	return l, l.update() // a suite's newest kernel is one of today
}

// mayUpdate returns whether this user may update the lists.
func (l aptLists) mayUpdate() bool { return len(l.options) > 0 || os.Geteuid() == 0 }

func (l aptLists) update() error {
	if out, err := l.command("apt-get", "update", "-qq").CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get update: %w\n%s", err, out)
	}
	return nil
}

// dependencies are those of a package, as its author wrote them.
func (l aptLists) dependencies(name string) (string, error) {
	out, err := l.command("apt-cache", "show", "--no-all-versions", name).Output()
	if err != nil {
		return "", fmt.Errorf("query apt for %s: %w", name, err)
	}
	for line := range strings.Lines(string(out)) {
		if list, ok := strings.CutPrefix(line, "Depends: "); ok {
			return list, nil
		}
	}
	return "", nil
}

// fetch downloads packages into a folder.
func (l aptLists) fetch(dir string, packages ...string) error {
	cmd := l.command("apt-get", append([]string{"download", "-q"}, packages...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("download the kernel, perhaps after apt-get update: %w\n%s", err, out)
	}
	return nil
}

func (l aptLists) command(name string, args ...string) *exec.Cmd {
	return exec.Command(name, append(l.options[:len(l.options):len(l.options)], args...)...)
}
