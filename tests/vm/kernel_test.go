package vm

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/dupip/dupip/tests/apt"
)

// kernelVariable names the environment variable with a folder that holds an unpacked
// Debian kernel package, which is used instead of the one from apt.
const kernelVariable = "DUPIP_VM_KERNEL"

// kernel is an unpacked kernel package.
type kernel struct {
	image   string            // the file to boot
	series  string            // such as 6.1
	modules map[string]string // files by name of the module; empty for one that is a part of the image
	// userMode: it is a program.
	userMode bool
}

// findKernel takes Debian's kernel of the day out of the cache, or downloads it.
func findKernel(name string, logf func(string, ...any)) (*kernel, error) {
	if dir := os.Getenv(kernelVariable); dir != "" {
		return openKernel(dir)
	}
	user, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("find a folder for the kernel: %w", err)
	}
	folder := filepath.Join(user, "dupip", "kernels", name)
	lists, err := apt.Of(kernelSources[name].suite, filepath.Join(folder, "apt"))
	if err != nil {
		return nil, fmt.Errorf("%w (set %s to an unpacked kernel package where there is no apt)", err, kernelVariable)
	}
	k, err := kernelOf(lists, name, folder, logf)
	if err == nil || !lists.MayUpdate() {
		return k, err
	}
	logf("updating the package lists, because: %v", err)
	if updateErr := lists.Update(); updateErr != nil {
		return nil, errors.Join(err, updateErr)
	}
	return kernelOf(lists, name, folder, logf)
}

// kernelOf opens the newest kernel that the lists have of a name, after it has downloaded it if need be.
func kernelOf(l apt.Lists, name, folder string, logf func(string, ...any)) (*kernel, error) {
	packages, err := newestKernel(l, name)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(folder, strings.ReplaceAll(packages[0], "=", "_"))
	if k, err := openKernel(dir); err == nil && k.has(modules) {
		return k, nil
	}
	logf("downloading %s", strings.Join(packages, " "))
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	// One kernel of a name is kept; what an interrupted download left goes, too.
	old, err := filepath.Glob(filepath.Join(folder, "*linux*"))
	if err != nil {
		return nil, err
	}
	for _, path := range old {
		if err := os.RemoveAll(path); err != nil {
			return nil, err
		}
	}
	partial := dir + ".partial"
	if err := os.Mkdir(partial, 0o755); err != nil {
		return nil, err
	}
	if err := download(l, partial, packages); err != nil {
		return nil, err
	}
	if err := os.Rename(partial, dir); err != nil {
		return nil, err
	}
	return openKernel(dir)
}

// kernelSources are where Debian 12 finds the kernels that are booted: by a metapackage, or the one that has the program, of another
// suite than its own if that is named.
var kernelSources = map[string]struct{ metapackage, suite string }{
	inUserMode: {"user-mode-linux", "bullseye"},
	"5.10":     {"linux-image-amd64", "bullseye"},
	"6.1":      {"linux-image-amd64", ""},
	"6.12":     {"linux-image-6.12-amd64", ""},
	"newest":   {"linux-image-amd64", "sid"},
}

// kernelDependency is how Debian's metapackages name the kernel of the day, and its packages each other: since Debian 14 the image
// and the modules are packages of their own.
var kernelDependency = regexp.MustCompile(`\b(linux-(image|binary|modules)-(\d+\.\d+)\.[^\s,]+) \(= ([^)\s]+)\)`)

// newestKernel returns the packages of the kernel that the lists have of a name, each with its version as apt takes it.
func newestKernel(l apt.Lists, name string) (packages []string, err error) {
	meta := kernelSources[name].metapackage
	if name == inUserMode {
		version, err := l.Field(meta, "Version")
		return []string{meta + "=" + version}, err
	}
	found, err := l.Field(meta, "Depends")
	if err != nil {
		return nil, fmt.Errorf("%w (set %s to an unpacked kernel package where there is no apt)", err, kernelVariable)
	}
	match := kernelDependency.FindStringSubmatch(found)
	if match == nil || match[2] != "image" || kernelSources[name].suite == "" && match[3] != name {
		return nil, fmt.Errorf("%s is no Linux %s here: use the package lists of Debian 12, or set %s to an unpacked kernel package", meta, name, kernelVariable)
	}
	parts, err := l.Field(match[1]+"="+match[4], "Depends")
	if err != nil {
		return nil, err
	}
	for _, part := range kernelDependency.FindAllStringSubmatch(parts, -1) {
		packages = append(packages, part[1]+"="+part[4])
	}
	if packages == nil {
		packages = []string{match[1] + "=" + match[4]}
	}
	return packages, nil
}

// download fetches packages and unpacks what is needed of them.
func download(l apt.Lists, dir string, packages []string) error {
	if err := l.Fetch(dir, packages...); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil {
		return err
	}
	if len(files) != len(packages) {
		return fmt.Errorf("download the kernel: want %d packages, found %q", len(packages), files)
	}
	for _, file := range files {
		if err := unpack(dir, file); err != nil {
			return fmt.Errorf("unpack %s: %w", filepath.Base(file), err)
		}
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	return nil
}

const (
	// program is a kernel in user mode.
	program = "linux.uml"
	// builtIn is the list of the modules that are a part of the image.
	builtIn = "modules.builtin"
)

// deviceFolders have the modules of devices without hardware.
var deviceFolders = []string{"net", "vxlan", "ipvlan", "bonding"}

// wanted are the files taken from a package: the image, and the modules of the network code, of devices without hardware, and of
// the checksums that some of them need. All modules together are ten times as much.
func wanted(file string) bool {
	return strings.HasPrefix(path.Base(file), "vmlinuz") || slices.Contains([]string{program, builtIn}, path.Base(file)) ||
		(strings.HasSuffix(file, ".ko") || strings.HasSuffix(file, ".ko.xz")) &&
			(strings.Contains(file, "/kernel/net/") || slices.Contains(deviceFolders, path.Base(path.Dir(file))) || strings.Contains(path.Base(file), "crc"))
}

func unpack(dir, deb string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	list := exec.Command("dpkg-deb", "--fsys-tarfile", deb)
	out, err := list.StdoutPipe()
	if err != nil {
		return err
	}
	if err := list.Start(); err != nil {
		return err
	}
	if err := untar(root, tar.NewReader(out)); err != nil {
		_ = list.Process.Kill()
		return errors.Join(err, list.Wait())
	}
	return list.Wait()
}

func untar(root *os.Root, archive *tar.Reader) error {
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := path.Clean(header.Name)
		if header.Typeflag != tar.TypeReg || !wanted(name) {
			continue
		}
		if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
			return err
		}
		file, err := root.Create(name)
		if err != nil {
			return err
		}
		_, err = io.Copy(file, archive)
		if err := errors.Join(err, file.Close()); err != nil {
			return err
		}
	}
}

// has reports whether the modules were unpacked: an older version of these tests may have taken fewer.
func (k *kernel) has(modules []string) bool {
	return !slices.ContainsFunc(modules, func(name string) bool { _, ok := k.modules[name]; return !ok })
}

// moduleName is the name of the module in a file. File names have dashes where dependencies have underscores.
func moduleName(file string) (string, bool) {
	name, ok := strings.CutSuffix(strings.TrimSuffix(filepath.Base(file), ".xz"), ".ko")
	return strings.ReplaceAll(name, "-", "_"), ok
}

// imageName is the folder or the file that is named after the kernel's version.
var imageName = regexp.MustCompile(`(?:/boot/vmlinuz-|/lib/modules/|/lib/uml/modules/)(\d+\.\d+)\.`)

// openKernel finds the image and the modules in unpacked packages.
func openKernel(dir string) (*kernel, error) {
	k := &kernel{modules: map[string]string{}}
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		base := filepath.Base(path)
		if name, ok := moduleName(path); ok {
			k.modules[name] = path
		}
		if version := imageName.FindStringSubmatch(path); version != nil && (strings.HasPrefix(base, "vmlinuz") || base == builtIn) {
			k.series = version[1]
		}
		switch {
		case err != nil:
			return err
		case strings.HasPrefix(base, "vmlinuz"), base == program:
			if k.image = path; base == program {
				k.userMode = true
				return os.Chmod(path, 0o755)
			}
		case base == builtIn:
			list, err := os.ReadFile(path)
			for file := range strings.FieldsSeq(string(list)) {
				if name, ok := moduleName(file); ok {
					k.modules[name] = ""
				}
			}
			return err
		}
		return nil
	})
	if _, ok := k.modules["ipv6"]; !ok {
		k.modules["ipv6"] = "" // newer kernels have it in the image, and it is no module
	}
	if err == nil && k.image == "" {
		err = fmt.Errorf("%s has neither boot/vmlinuz-VERSION nor lib/modules/VERSION/vmlinuz nor bin/%s", dir, program)
	}
	return k, err
}
