package apt

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Unpacked returns a folder with the files of packages of a suite, the newest of today. They stay in the user's cache. Their
// programs run with the machine's libraries, if these are new enough.
func Unpacked(suite string, packages ...string) (string, error) {
	user, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a folder for packages: %w", err)
	}
	folder := filepath.Join(user, "dupip", "packages", suite)
	lists, err := Of(suite, filepath.Join(folder, "apt"))
	if err != nil {
		return "", err
	}
	return lists.unpacked(folder, packages)
}

// longestName is that of a folder, less ".partial" (NAME_MAX, limits.h).
const longestName = 255 - 8

// unpacked is Unpacked of these lists, in a folder that holds packages of one suite.
func (l Lists) unpacked(folder string, packages []string) (string, error) {
	packages = slices.Clone(packages)
	for i, name := range packages {
		version, err := l.Field(name, "Version")
		if err != nil {
			return "", err
		}
		packages[i] = name + "=" + version
	}
	// In PATH, a colon would end the name.
	name := strings.ReplaceAll(strings.Join(packages, ","), ":", "%3a")
	if len(name) > longestName {
		name = fmt.Sprintf("%s,%x", strings.ReplaceAll(packages[0], ":", "%3a"), sha256.Sum256([]byte(name)))
	}
	dir := filepath.Join(folder, name)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	// Older versions go, and what was interrupted.
	old, err := filepath.Glob(filepath.Join(folder, strings.Split(packages[0], "=")[0]+"=*"))
	if err != nil {
		return "", err
	}
	for _, path := range old {
		err = errors.Join(err, os.RemoveAll(path))
	}
	partial := dir + ".partial"
	if err := errors.Join(err, os.Mkdir(partial, 0o755)); err != nil {
		return "", err
	}
	if err := l.Fetch(partial, packages...); err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(partial, "*.deb"))
	if err != nil {
		return "", err
	}
	if len(files) != len(packages) {
		return "", fmt.Errorf("download %v: found %q", packages, files)
	}
	for _, file := range files {
		if out, err := exec.Command("dpkg-deb", "--extract", file, partial).CombinedOutput(); err != nil {
			return "", fmt.Errorf("unpack %s: %w\n%s", filepath.Base(file), err, out)
		}
		if err := os.Remove(file); err != nil {
			return "", err
		}
	}
	return dir, os.Rename(partial, dir)
}
