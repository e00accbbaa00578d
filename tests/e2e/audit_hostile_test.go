package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/lab"
)

// trouble is something that books or runtime may do to the agent.
type trouble struct {
	name       string
	make, undo func(b *booked, store string) error
	// audit and status are what these commands say meanwhile.
	audit, status string
}

var troubles = []trouble{
	{
		name:  "the runtime is stopped",
		make:  func(b *booked, _ string) error { return b.Stop() },
		undo:  func(b *booked, _ string) error { return b.Start(b.Context()) },
		audit: "Not checked: everything: the container runtime has not answered", status: "Pod names none: ",
	},
	{
		name:  "the runtime does not answer",
		make:  func(b *booked, _ string) error { return b.Signal(unix.SIGSTOP) },
		undo:  func(b *booked, _ string) error { return b.Signal(unix.SIGCONT) },
		audit: "Not checked: everything: the container runtime has not answered", status: "Pod names none: ",
	},
	inStead("a file", func(store string) error { return os.WriteFile(store, nil, 0o600) }, "it is no folder"),
	inStead("a symbolic link", func(store string) error { return os.Symlink(store+".away", store) }, "it is no folder"),
	inStead("a FIFO", func(store string) error { return unix.Mkfifo(store, 0o600) }, "it is no folder"),
	inside("a symbolic link", func(path string) error { return os.Symlink("/dev/zero", path) }),
	inside("a FIFO", func(path string) error { return unix.Mkfifo(path, 0o600) }),
	inside("a folder", func(path string) error { return os.Mkdir(path, 0o700) }),
	inside("a large file", func(path string) error { return os.WriteFile(path, make([]byte, 1<<20), 0o600) }),
	{
		name:  "100,000 files",
		make:  func(_ *booked, store string) error { return fill(store, 100_000) },
		undo:  func(_ *booked, store string) error { return empty(store) },
		audit: "more than 65536", status: "more than 65536",
	},
}

// inStead is a store that is something else. A store that is away is empty, so the pod's finding is there again at once.
func inStead(what string, create func(store string) error, says string) trouble {
	return trouble{
		name: what + " in place of the store",
		make: func(_ *booked, store string) error {
			if err := os.Rename(store, store+".away"); err != nil {
				return err
			}
			return create(store)
		},
		undo: func(_ *booked, store string) error {
			if err := os.Remove(store); err != nil {
				return err
			}
			return os.Rename(store+".away", store)
		},
		audit: says, status: says,
	}
}

// inside is something in the store that has the name of a reservation.
func inside(what string, create func(path string) error) trouble {
	const name, says = "10.95.0.200", "it is no file of a reservation"
	return trouble{
		name:  what + " in the store",
		make:  func(_ *booked, store string) error { return create(filepath.Join(store, name)) },
		undo:  func(_ *booked, store string) error { return os.Remove(filepath.Join(store, name)) },
		audit: says, status: says,
	}
}

var firstOfMany = netip.MustParseAddr("10.95.1.0")

// fill makes many reservations.
func fill(store string, count int) error {
	ip := firstOfMany
	for range count {
		if err := os.WriteFile(filepath.Join(store, ip.String()), []byte("x\r\neth0"), 0o600); err != nil {
			return err
		}
		ip = ip.Next()
	}
	return nil
}

// empty removes them.
func empty(store string) error {
	entries, err := os.ReadDir(store)
	for _, e := range entries {
		if ip, err := netip.ParseAddr(e.Name()); err == nil && !ip.Less(firstOfMany) {
			if err := os.Remove(filepath.Join(store, e.Name())); err != nil {
				return err
			}
		}
	}
	return err
}

// TestAuditInTrouble: whatever happens to the books or to the runtime, the agent answers soon, finds nothing that it cannot
// know, and says what the matter is. Afterwards it finds what there is.
func TestAuditInTrouble(t *testing.T) {
	t.Parallel()
	b := newBooked(t, "10.95.0.0/24", "--unheld-after", "1s")
	web := b.run("web")
	ip := web.IPs[0].String()
	reservation := b.reservation(web.IPs[0])
	store := filepath.Dir(reservation)
	content, err := os.ReadFile(reservation)
	b.Do(err)
	leak := filepath.Join(store, "10.95.0.77")
	b.Do(os.WriteFile(leak, []byte(strings.Repeat("0123456789abcdef", 4)+"\r\neth0"), 0o600))
	for _, trouble := range troubles {
		t.Log(trouble.name)
		b.findings("unheld 10.95.0.77")
		// What was found before does not stay, and what happens meanwhile is not found.
		b.Do(os.Remove(reservation), trouble.make(b, store))
		began := time.Now()
		b.says("audit", "No finding", trouble.audit)
		b.says("status", trouble.status)
		t.Logf("said after %v", time.Since(began))
		for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
			out := b.soon("audit")
			if !strings.Contains(out, "No finding") || strings.Contains(out, "flock") {
				t.Errorf("%s: the audit says\n%s", trouble.name, out)
				break
			}
			if out := b.soon("explain " + ip); !strings.Contains(out, ip) || strings.Contains(out, "Because") || strings.Contains(out, "given out again") {
				t.Errorf("%s: explain says\n%s", trouble.name, out)
				break
			}
		}
		b.Do(trouble.undo(b, store))
		b.findings("unreserved "+ip+" web", "unheld 10.95.0.77")
		b.Do(os.WriteFile(reservation, content, 0o600))
	}
}

// soon returns what a command prints, which must not take long.
func (b *booked) soon(command string) string {
	b.Helper()
	ctx, cancel := lab.WithTimeout(b.Context(), lab.Patience(1500*time.Millisecond))
	defer cancel()
	out, err := b.agent.CLI(ctx, strings.Fields(command)...)
	if err != nil {
		b.Fatal(fmt.Errorf("dupip %s: %w", command, errors.Join(err, context.Cause(ctx))))
	}
	return out
}

// TestUnheldInUse: what a pod has, and a sandbox that does not exist has reserved, must not be freed.
func TestUnheldInUse(t *testing.T) {
	t.Parallel()
	b := newBooked(t, "10.94.0.0/24", "--unheld-after", "1s")
	web := b.run("web")
	ip := web.IPs[0].String()
	b.Do(os.WriteFile(b.reservation(web.IPs[0]), []byte(strings.Repeat("0123456789abcdef", 4)+"\r\neth0"), 0o600))
	b.findings("unheld " + ip + " web")
	b.says("audit", ip+" is reserved for sandbox 0123456789abc, which does not exist any more, and shop/web has it. Do not free it")
	if out := b.soon("audit"); strings.Contains(out, "flock") {
		t.Errorf("the audit advises to free the address of a pod:\n%s", out)
	}
}
