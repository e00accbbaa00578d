package peers

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

// programPath is the path of a program; Debian has some where not every PATH looks.
func programPath(program string) (string, error) {
	for _, name := range []string{program, "/usr/sbin/" + program, "/usr/bin/" + program} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("find %s (tests/install.sh compare installs it): %w", program, exec.ErrNotFound)
}

// start starts a program on a node, passes each line that it prints to line, and waits until it
// listens. It finds its files in a folder of its own, and has no DNS: there is no server in the
// lab, and arpwatch would wait for it before each report. It must not end before the lab does,
// because it would miss packets; gone excuses that.
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

// tempDir is a folder for one program on a node; a later lab removes it should we be
// killed.
func tempDir(n *lab.Node) (string, error) {
	return os.MkdirTemp("", n.Name+"-peer-")
}

// excludeMAC is a filter for libpcap that refuses the ARP packets that a MAC sends and
// those to it. They are found by the ARP packet, which begins at an offset: "arp[0]", or
// "ether[14]" for arpwatch, which puts "not vlan and" before the filter, and that moves
// libpcap's idea of where "arp" is.
func excludeMAC(mac net.HardwareAddr, layer string, begin int) string {
	const sender, target = 8, 18
	at := func(offset int) string {
		return fmt.Sprintf("(%s[%d:4] == 0x%x and %s[%d:2] == 0x%x)", layer, begin+offset, []byte(mac[:4]), layer, begin+offset+4, []byte(mac[4:]))
	}
	return "not " + at(sender) + " and not " + at(target)
}
