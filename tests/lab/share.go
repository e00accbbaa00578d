package lab

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// shareNames makes /run/netns a shared mount, as the first `ip netns add` on a machine
// does (iproute2, ip/ipnetns.c). Should that come after us, it would put a mount over
// the names that are there, and they could not be removed any more.
func shareNames() error {
	if err := os.MkdirAll(netnsDir, 0o755); err != nil {
		return fmt.Errorf("make %s: %w", netnsDir, err)
	}
	dir, err := os.Open(netnsDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	// Another test process may be about to do the same.
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", netnsDir, err)
	}
	share := func() error { return unix.Mount("", netnsDir, "none", unix.MS_SHARED|unix.MS_REC, "") }
	err = share()
	if errors.Is(err, unix.EINVAL) { // it is no mount yet
		err = errors.Join(unix.Mount(netnsDir, netnsDir, "none", unix.MS_BIND|unix.MS_REC, ""), share())
	}
	if err != nil {
		return fmt.Errorf("make %s a shared mount: %w", netnsDir, err)
	}
	return nil
}
