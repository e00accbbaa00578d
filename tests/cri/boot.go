package cri

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// bootIDFile is where a container reads which boot of the machine this is, as seen from
// the root of its file system.
const bootIDFile = "proc/sys/kernel/random/boot_id"

// bootID is a link to the file with the node's boot id, for containers that start now.
func (r *Runtime) bootID() string { return filepath.Join(r.dir, "boot_id") }

// baseSpec is what every container's specification begins as.
func (r *Runtime) baseSpec() string { return filepath.Join(r.dir, "base.json") }

// noteBootID links bootID to the file of the node's current boot. Older containers keep theirs.
func (r *Runtime) noteBootID() error {
	r.bootMu.Lock()
	defer r.bootMu.Unlock()
	next := r.bootID() + ".new"
	if err := os.Symlink(r.Node.BootIDFile(), next); err != nil {
		return err
	}
	return os.Rename(next, r.bootID())
}

// WriteBaseSpec writes what each container's specification begins as: it has the boot id of its node, which is in the file id,
// as if nodes were machines. CRI cannot mount anything below /proc, so a hook does it in the container's mount namespace, in the
// folder that becomes the root.
func WriteBaseSpec(path, id string) error {
	mount, err := exec.LookPath("mount")
	if err != nil {
		return fmt.Errorf("find a program: %w", err)
	}
	out, err := exec.Command("ctr", "oci", "spec").Output()
	if err != nil {
		return fmt.Errorf("get the default specification from ctr: %w", err)
	}
	var spec map[string]any
	if err := json.Unmarshal(out, &spec); err != nil {
		return fmt.Errorf("read the default specification: %w", err)
	}
	spec["hooks"] = map[string]any{"createContainer": []any{map[string]any{
		"path": mount,
		"args": []string{"mount", "--no-mtab", "--no-canonicalize", "--bind", id, bootIDFile},
	}}}
	if out, err = json.Marshal(spec); err != nil {
		return fmt.Errorf("write the base specification: %w", err)
	}
	return os.WriteFile(path, out, 0o644)
}

// shared makes a folder that is a shared mount: later mounts and unmounts in it propagate, as on a
// machine whose init has made all mounts shared.
func shared(dir string) error {
	if err := os.Mkdir(dir, 0o711); err != nil {
		return err
	}
	for _, step := range []struct {
		source string
		flags  uintptr
	}{{dir, unix.MS_BIND}, {"", unix.MS_PRIVATE}, {"", unix.MS_SHARED}} {
		if err := unix.Mount(step.source, dir, "", step.flags, ""); err != nil {
			return fmt.Errorf("make %s a shared mount: %w", dir, err)
		}
	}
	return nil
}
