package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/dupip/dupip/tests/lab"
)

// tshark returns the fields of the frames that a filter selects, without fields a summary, a line for each.
func tshark(l *lab.T, file, filter string, fields ...string) (lines []string) {
	l.Helper()
	args := []string{"-n", "-r", file, "-Y", filter}
	if len(fields) > 0 {
		args = append(args, "-T", "fields")
	}
	for _, f := range fields {
		args = append(args, "-e", f)
	}
	cmd := exec.CommandContext(l.Context(), "tshark", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		l.Fatalf("tshark %v: %v\n%s(tests/install.sh test installs it)", args, err, stderr.String())
	}
	return slices.DeleteFunc(strings.Split(string(out), "\n"), func(s string) bool { return s == "" })
}

// unpack reads an archive, which has one folder, and checks its hashes.
func unpack(l *lab.T, file string) map[string][]byte {
	l.Helper()
	f, err := os.Open(file)
	l.Do(err)
	defer f.Close()
	zipped, err := gzip.NewReader(f)
	l.Do(err)
	files, folder := make(map[string][]byte), ""
	for r := tar.NewReader(zipped); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		l.Do(err)
		data, err := io.ReadAll(r)
		l.Do(err)
		if folder == "" {
			folder = path.Dir(h.Name)
		}
		if path.Dir(h.Name) != folder || strings.Contains(folder, "/") || folder == "." || folder == ".." {
			l.Errorf("%s is not in the folder %s", h.Name, folder)
		}
		files[path.Base(h.Name)] = data
	}
	sums := make(map[string]string)
	for line := range strings.Lines(string(files["SHA256SUMS"])) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		sums[name] = sum
	}
	if len(sums) != len(files)-1 || len(files) != 6 {
		l.Errorf("%d files and %d hashes", len(files), len(sums))
	}
	for name, sum := range sums {
		if got := fmt.Sprintf("%x", sha256.Sum256(files[name])); got != sum {
			l.Errorf("the hash of %s is %s, not %s", name, got, sum)
		}
	}
	return files
}

// capturedBy counts the addresses whose packets an agent's program captures, by the kernel's map.
func capturedBy(l *lab.T, a *lab.Agent) (n int) {
	l.Helper()
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", a.PID()))
	l.Do(err)
	found := false
	for _, name := range fds {
		data, _ := os.ReadFile(name) // it may be closed by now
		id := regexp.MustCompile(`(?m)^map_id:\t(\d+)$`).FindSubmatch(data)
		if id == nil {
			continue
		}
		number, err := strconv.Atoi(string(id[1]))
		l.Do(err)
		m, err := ebpf.NewMapFromID(ebpf.MapID(number))
		l.Do(err)
		info, err := m.Info()
		l.Do(err)
		if info.Name == "captures" {
			found = true
			key, value := make([]byte, m.KeySize()), make([]byte, m.ValueSize())
			for all := m.Iterate(); all.Next(&key, &value); {
				n++
			}
		}
		l.Do(m.Close())
	}
	if !found {
		l.Errorf("the agent on %s has no map of captures", a.Node.ShortName())
	}
	return n
}
