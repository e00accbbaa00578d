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

// bootID leads to the file with the boot id of the node, as containers that start now have it.
func (r *Runtime) bootID() string { return filepath.Join(r.dir, "boot_id") }

// baseSpec is what every container's specification begins as.
func (r *Runtime) baseSpec() string { return filepath.Join(r.dir, "base.json") }

// noteBootID leads bootID to the file of the node's present boot. Containers of a former one go
// on seeing theirs.
func (r *Runtime) noteBootID() error {
	r.bootMu.Lock()
	defer r.bootMu.Unlock()
	next := r.bootID() + ".new"
	if err := os.Symlink(r.Node.BootIDFile(), next); err != nil {
		return err
	}
	return os.Rename(next, r.bootID())
}

// writeBaseSpec makes the nodes of a lab as many machines for containers as well: each
// sees the boot id of its node. Nothing can be mounted below /proc through CRI, so it
// is a hook: it runs in the mount namespace of the container, when everything is mounted
// and before that becomes the root, in the folder that will be it.
func (r *Runtime) writeBaseSpec() error {
	mount, err := exec.LookPath("mount")
	if err != nil {
		return fmt.Errorf("find a program: %w", err)
	}
	out, err := exec.Command("ctr", "oci", "spec").Output()
	if err != nil {
		return fmt.Errorf("ask ctr for the default specification: %w", err)
	}
	var spec map[string]any
	if err := json.Unmarshal(out, &spec); err != nil {
		return fmt.Errorf("read the default specification: %w", err)
	}
	spec["hooks"] = map[string]any{"createContainer": []any{map[string]any{
		"path": mount,
		"args": []string{"mount", "--no-mtab", "--no-canonicalize", "--bind", r.bootID(), bootIDFile},
	}}}
	if out, err = json.Marshal(spec); err != nil {
		return fmt.Errorf("write the base specification: %w", err)
	}
	return os.WriteFile(r.baseSpec(), out, 0o644)
}

// shared makes a folder that is a shared mount of its own: what is mounted in it and
// unmounted later reaches those who have asked for it, as it does on a machine whose init
// has made all mounts shared.
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
