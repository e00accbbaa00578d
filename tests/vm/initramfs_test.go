package vm

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
)

// cpioWriter writes an archive in the format newc, which the kernel unpacks at boot
// (Documentation/driver-api/early-userspace/buffer-format.rst).
type cpioWriter struct {
	out   io.Writer
	inode int
	added map[string]bool
	err   error
}

const (
	cpioFolder     = 0o040755
	cpioExecutable = 0o100755
)

// add appends one entry, after the folders that it is in. Errors are kept for close.
func (w *cpioWriter) add(name string, mode int, data []byte) {
	name = strings.TrimPrefix(name, "/")
	if w.added[name] {
		return
	}
	w.added[name] = true
	if folder := path.Dir(name); folder != "." {
		w.add(folder, cpioFolder, nil)
	}
	w.inode++
	var b bytes.Buffer
	fmt.Fprintf(&b, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		w.inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
	b.WriteString(name)
	b.WriteByte(0)
	w.padded(b.Bytes())
	w.padded(data)
}

// padded writes a part and fills it up to a multiple of four bytes.
func (w *cpioWriter) padded(part []byte) {
	for _, p := range [][]byte{part, make([]byte, -len(part)&3)} {
		if w.err == nil {
			_, w.err = w.out.Write(p)
		}
	}
}

func (w *cpioWriter) addFile(name, file string) {
	data, err := readFile(file)
	if w.err == nil {
		w.err = err
	}
	w.add(name, cpioExecutable, data)
}

// library is a line of ldd: a library that was found, or the loader.
var library = regexp.MustCompile(`(?m)^\t(?:\S+ => )?(/\S+) \(0x`)

// addProgram adds a program of this machine to bin, and the libraries that it needs.
func (w *cpioWriter) addProgram(name string) error {
	file, err := exec.LookPath(name)
	if err != nil {
		return fmt.Errorf("there is no %s: %w", name, err)
	}
	needs, err := exec.Command("ldd", file).Output()
	if err != nil {
		return fmt.Errorf("list the libraries of %s: %w", file, err)
	}
	w.addFile("bin/"+name, file)
	for _, match := range library.FindAllStringSubmatch(string(needs), -1) {
		w.addFile(match[1], match[1])
	}
	return nil
}

func (w *cpioWriter) close() error {
	w.add("TRAILER!!!", 0, nil)
	return w.err
}

// inOrder are modules with all they depend on, each after its dependencies.
func (k *kernel) inOrder(names []string) ([]string, error) {
	var order []string
	var add func(name, by string) error
	add = func(name, by string) error {
		if slices.Contains(order, name) {
			return nil
		}
		file, ok := k.modules[name]
		if !ok {
			return fmt.Errorf("the kernel package has no module %s, wanted by %s", name, by)
		}
		if file == "" {
			return nil
		}
		dependencies, err := dependsOn(file)
		if err != nil {
			return fmt.Errorf("read the dependencies of module %s: %w", name, err)
		}
		for _, dependency := range dependencies {
			if err := add(dependency, name); err != nil {
				return err
			}
		}
		order = append(order, name)
		return nil
	}
	for _, name := range names {
		if err := add(name, "the tests"); err != nil {
			return nil, err
		}
	}
	return order, nil
}

// readFile reads a file, also one that is compressed by xz, as modules are.
func readFile(path string) ([]byte, error) {
	if !strings.HasSuffix(path, ".xz") {
		return os.ReadFile(path)
	}
	data, err := exec.Command("xz", "--decompress", "--stdout", path).Output()
	if err != nil {
		return nil, fmt.Errorf("decompress %s (tests/install.sh vm installs xz): %w", path, err)
	}
	return data, nil
}

// dependsOn reads the dependencies of a module, as modinfo does.
func dependsOn(file string) (names []string, err error) {
	content, err := readFile(file)
	if err != nil {
		return nil, err
	}
	module, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	section := module.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("%s has no section .modinfo", file)
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	for field := range strings.SplitSeq(string(info), "\x00") {
		if list, ok := strings.CutPrefix(field, "depends="); ok && list != "" {
			names = append(names, strings.Split(strings.ReplaceAll(list, "-", "_"), ",")...)
		}
		if field == "softdep=pre: crc32c" { // that is an alias of several
			names = append(names, "crc32c_generic")
		}
	}
	return names, nil
}

// isStatic returns whether a binary needs no other file.
func isStatic(path string) (bool, error) {
	binary, err := elf.Open(path)
	if err != nil {
		return false, err
	}
	defer binary.Close()
	return !slices.ContainsFunc(binary.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }), nil
}
