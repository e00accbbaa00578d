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
)

// kernelVariable names the environment variable with a folder that holds an unpacked
// Debian kernel package, which is used instead of the one from apt.
const kernelVariable = "DUPIP_VM_KERNEL"

// kernel is an unpacked kernel package.
type kernel struct {
	image   string            // the file to boot
	modules map[string]string // files by name of the module
}

// findKernel takes Debian's newest kernel of a series, such as 6.1, out of the cache, or downloads it. Lists
// that are missing or too old are updated by root, and else named in the error.
func findKernel(series string, logf func(string, ...any)) (*kernel, error) {
	k, err := cachedKernel(series, logf)
	if err == nil || os.Geteuid() != 0 || os.Getenv(kernelVariable) != "" {
		return k, err
	}
	logf("updating the package lists, because: %v", err)
	if out, updateErr := exec.Command("apt-get", "update", "-qq").CombinedOutput(); updateErr != nil {
		return nil, fmt.Errorf("%w; and apt-get update failed: %w\n%s", err, updateErr, out)
	}
	return cachedKernel(series, logf)
}

func cachedKernel(series string, logf func(string, ...any)) (*kernel, error) {
	if dir := os.Getenv(kernelVariable); dir != "" {
		return openKernel(dir)
	}
	name, version, err := newestKernel(series)
	if err != nil {
		return nil, err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("find a folder for the kernel: %w", err)
	}
	cache = filepath.Join(cache, "dupip", "kernels")
	dir := filepath.Join(cache, name+"_"+version)
	if k, err := openKernel(dir); err == nil && k.has(modules) {
		return k, nil
	}
	logf("downloading %s %s", name, version)
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, err
	}
	// One kernel of a series is kept; what an interrupted download left goes, too.
	old, err := filepath.Glob(filepath.Join(cache, "linux-image-"+series+".*"))
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
	if err := download(partial, name+"="+version); err != nil {
		return nil, err
	}
	if err := os.Rename(partial, dir); err != nil {
		return nil, err
	}
	return openKernel(dir)
}

// metapackages are how Debian 12 names the kernels that are booted.
var metapackages = map[string]string{"6.1": "linux-image-amd64", "6.12": "linux-image-6.12-amd64"}

// kernelDependency is how Debian's metapackages name the kernel of the day.
var kernelDependency = regexp.MustCompile(`(?m)^Depends: (linux-image-(\d+\.\d+)\.\S+) \(= ([^)\s]+)\)`)

// newestKernel returns the package of the newest kernel of a series in apt's lists, and its version.
func newestKernel(series string) (name, version string, err error) {
	meta := metapackages[series]
	out, err := exec.Command("apt-cache", "show", "--no-all-versions", meta).Output()
	if err != nil {
		return "", "", fmt.Errorf("query apt for %s: %w (set %s to an unpacked kernel package where there is no apt)", meta, err, kernelVariable)
	}
	match := kernelDependency.FindSubmatch(out)
	if match == nil || string(match[2]) != series {
		return "", "", fmt.Errorf("%s is no Linux %s here: use the package lists of Debian 12, or set %s to an unpacked kernel package", meta, series, kernelVariable)
	}
	return string(match[1]), string(match[3]), nil
}

// download fetches a package and unpacks what is needed of it.
func download(dir, name string) error {
	fetch := exec.Command("apt-get", "download", "-q", name)
	fetch.Dir = dir
	if out, err := fetch.CombinedOutput(); err != nil {
		return fmt.Errorf("download the kernel, perhaps after apt-get update: %w\n%s", err, out)
	}
	packages, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil {
		return err
	}
	if len(packages) != 1 {
		return fmt.Errorf("download the kernel: want one package, found %q", packages)
	}
	if err := unpack(dir, packages[0]); err != nil {
		return fmt.Errorf("unpack %s: %w", filepath.Base(packages[0]), err)
	}
	return os.Remove(packages[0])
}

// deviceFolders have the modules of devices without hardware.
var deviceFolders = []string{"net", "vxlan", "ipvlan", "bonding"}

// wanted are the files taken from a package: the image, and the modules of the network code
// and of devices without hardware. All modules together are ten times as much.
func wanted(file string) bool {
	return strings.HasPrefix(file, "boot/vmlinuz-") ||
		(strings.HasSuffix(file, ".ko") || strings.HasSuffix(file, ".ko.xz")) &&
			(strings.Contains(file, "/kernel/net/") || slices.Contains(deviceFolders, path.Base(path.Dir(file))))
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
	return !slices.ContainsFunc(modules, func(name string) bool { return k.modules[name] == "" })
}

// openKernel finds the image and the modules in an unpacked package.
func openKernel(dir string) (*kernel, error) {
	images, err := filepath.Glob(filepath.Join(dir, "boot", "vmlinuz-*"))
	if err != nil {
		return nil, err
	}
	if len(images) != 1 {
		return nil, fmt.Errorf("there must be one boot/vmlinuz-* in %s: found %d", dir, len(images))
	}
	k := &kernel{image: images[0], modules: map[string]string{}}
	err = filepath.WalkDir(filepath.Join(dir, "lib", "modules"), func(path string, _ os.DirEntry, err error) error {
		if name, ok := strings.CutSuffix(strings.TrimSuffix(filepath.Base(path), ".xz"), ".ko"); ok {
			// File names have dashes where dependencies have underscores.
			k.modules[strings.ReplaceAll(name, "-", "_")] = path
		}
		return err
	})
	return k, err
}
