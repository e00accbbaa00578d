package lab

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// bootIDFile is where programs read the boot id.
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// NewUUID is a random UUID, as the kernel makes them (random(4)).
func NewUUID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/uuid")
	if err != nil {
		panic(err)
	}
	return strings.TrimSpace(string(id))
}

// UUIDOf is the same UUID for a name each time. As those of the API server, commands may have it.
func UUIDOf(name string) string {
	h := sha256.Sum256([]byte(name))
	return fmt.Sprintf("%x-%x-%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16])
}

// BootIDFile is the file with the node's boot id. Agents that start now have it in place of the kernel's,
// as if each node were a machine.
func (n *Node) BootIDFile() string { return *n.bootIDFile.Load() }

// BootID is what is in the BootIDFile.
func (n *Node) BootID() string { return strings.TrimPrefix(filepath.Base(n.BootIDFile()), "boot-") }

// Reboot gives the node another random boot id, for agents that start from now on; others keep theirs,
// because the file is a new one. What else a reboot does, to agents and pods, the caller does before.
func (n *Node) Reboot() error {
	dir, err := TempDir()
	if err != nil {
		return err
	}
	id := NewUUID()
	file := filepath.Join(dir, "boot-"+id)
	if err := os.WriteFile(file, []byte(id+"\n"), 0o444); err != nil {
		return fmt.Errorf("write a boot id: %w", err)
	}
	n.bootIDFile.Store(&file)
	return nil
}
