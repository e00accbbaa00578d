package lab

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// bootIDFile is where programs read which boot of the machine this is.
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// boot is one life of a node, between two reboots.
type boot struct {
	mu   sync.Mutex
	id   string
	file string
}

// newBoot begins a life with a random id.
func newBoot() (*boot, error) {
	b := &boot{}
	return b, b.again()
}

// again begins the next one. The file is a new one: agents of the former life go on
// seeing theirs.
func (b *boot) again() error {
	dir, err := tempDir()
	if err != nil {
		return err
	}
	// As in random(4): a UUID of version 4.
	var u [16]byte
	_, _ = rand.Read(u[:])
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	id := fmt.Sprintf("%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
	file := filepath.Join(dir, "boot-"+id)
	if err := os.WriteFile(file, []byte(id+"\n"), 0o444); err != nil {
		return fmt.Errorf("write a boot id: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.id, b.file = id, file
	return nil
}

// enter gives the calling thread, which must be locked and never be used again, a mount
// namespace of its own in which the kernel's boot id is the node's. What is mounted
// below /run/netns later appears there, too, and what is unmounted vanishes. With the
// last thread and process inside, the namespace is gone.
func (b *boot) enter() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("keep mounts to ourselves: %w", err)
	}
	b.mu.Lock()
	file := b.file
	b.mu.Unlock()
	if err := unix.Mount(file, bootIDFile, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount a boot id: %w", err)
	}
	return nil
}

// BootID is what an agent that starts now reads as the kernel's boot id. Nodes are as
// many machines, so each has its own.
func (n *Node) BootID() string {
	n.boot.mu.Lock()
	defer n.boot.mu.Unlock()
	return n.boot.id
}

// Reboot gives the node another boot id, for agents that start from now on. What else a
// reboot does, to agents and pods, the caller does before.
func (n *Node) Reboot() error { return n.boot.again() }
