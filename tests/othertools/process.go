package othertools

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// readyTimeout is how long a program may take to listen on a busy machine.
var readyTimeout = lab.Patience(20 * time.Second)

// programPath is the path of a program; some are in /usr/sbin, which not every PATH has.
func programPath(program string) (string, error) {
	for _, name := range []string{program, "/usr/sbin/" + program, "/usr/bin/" + program} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("find %s (tests/install.sh compare installs it): %w", program, exec.ErrNotFound)
}

// start starts a program on a node, passes each line that it prints to line, and waits until it listens.
// Its files are in dir. It has no DNS, because arpwatch would wait for a server before each report. It
// is an error if it ends before the lab, unless gone returns true.
func start(ctx context.Context, n *lab.Node, dir string, cmd *exec.Cmd, line func(string), listens func() error, gone func() bool) (*lab.Process, error) {
	switches := filepath.Join(dir, "nsswitch.conf")
	if err := os.WriteFile(switches, []byte("passwd: files\ngroup: files\nhosts: files\n"), 0o644); err != nil {
		return nil, err
	}
	read, write := io.Pipe()
	cmd.Stdout, cmd.Stderr = write, write
	go func() {
		for scanner := bufio.NewScanner(read); scanner.Scan(); {
			line(scanner.Text())
		}
		_, _ = io.Copy(io.Discard, read) // after a line that is too long
	}()
	cmd.Env = append(os.Environ(), "LC_ALL=C", "TMPDIR="+dir, "HOME="+dir)
	// A child of its own may hold the output open.
	cmd.WaitDelay = 2 * time.Second
	p, err := n.Launch(cmd, lab.Mount{File: switches, At: "/etc/nsswitch.conf"})
	if err != nil {
		return nil, err
	}
	n.Lab().OnClose(func() error {
		defer os.RemoveAll(dir)
		if !p.Running() && !gone() {
			return fmt.Errorf("%s ended by itself", cmd.Path)
		}
		return p.Stop()
	})
	return p, lab.Poll(ctx, readyTimeout, func() error {
		if !p.Running() {
			return lab.Final(fmt.Errorf("%s ended by itself", cmd.Path))
		}
		return listens()
	})
}

// tempDir is a folder for one program on a node. A later lab removes it if this process is killed.
func tempDir(n *lab.Node) (string, error) {
	return os.MkdirTemp("", n.Name+"-tool-")
}

// excludeMAC is a libpcap filter that excludes ARP packets from the MACs that begin with prefix, and to them. The ARP packet begins
// at "arp[0]", or at "ether[14]" for arpwatch: it puts "not vlan and" before the filter, which moves the
// offset of "arp".
func excludeMAC(prefix net.HardwareAddr, layer string, begin int) string {
	const sender, target = 8, 18
	at := func(offset int) string {
		return fmt.Sprintf("(%s[%d:2] == 0x%x and %s[%d] == 0x%x)", layer, begin+offset, []byte(prefix[:2]), layer, begin+offset+2, prefix[2])
	}
	return "not " + at(sender) + " and not " + at(target)
}
