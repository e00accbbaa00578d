package bench

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/lab"
)

// memory is what the cgroup of an agent has, in bytes. Working is what kubelet calls the working set, by which it evicts pods: all but the
// file pages that were not used lately.
type memory struct{ anon, kernel, file, working float64 }

// memoryCgroup has the node's agents started in a cgroup of their own, and returns its folder; empty if none can be made. The program is a
// copy that no page cache has, because pages count for who reads them first.
func (b *bench) memoryCgroup(n *lab.Node) (group string) {
	b.Helper()
	dir, err := lab.TempDir()
	b.Do(err)
	group = "/sys/fs/cgroup/dupip-bench-" + n.ShortName() + "-" + filepath.Base(dir)
	if _, err := os.Stat("/sys/fs/cgroup/memory"); err == nil { // version 1
		group = filepath.Join("/sys/fs/cgroup/memory", filepath.Base(group))
	}
	if err := os.Mkdir(group, 0o755); err != nil {
		b.Logf("no cgroup for the agent's memory: %v", err)
		return ""
	}
	b.OnClose(func() error { return os.Remove(group) }) // after the agent has ended
	program, err := lab.Binary()
	b.Do(err)
	from, err := os.Open(program)
	b.Do(err)
	defer from.Close()
	copied := filepath.Join(dir, n.ShortName()+"-dupip")
	to, err := os.OpenFile(copied, os.O_CREATE|os.O_WRONLY, 0o700)
	b.Do(err)
	_, err = io.Copy(to, from)
	b.Do(err, to.Sync(), unix.Fadvise(int(to.Fd()), 0, 0, unix.FADV_DONTNEED), to.Close())
	n.Program = copied + ".sh"
	b.Do(os.WriteFile(n.Program, fmt.Appendf(nil, "#!/bin/sh\necho $$ >%s/cgroup.procs\nexec %s \"$@\"\n", group, copied), 0o700))
	return group
}

// memoryOf reads what a cgroup has.
func (b *bench) memoryOf(group string) (m memory) {
	b.Helper()
	read := func(name string) (string, error) {
		data, err := os.ReadFile(filepath.Join(group, name))
		return strings.TrimSpace(string(data)), err
	}
	text, err := read("memory.stat")
	b.Do(err)
	stat := make(map[string]float64)
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		stat[name], err = strconv.ParseFloat(value, 64)
		b.Do(err)
	}
	number := func(name string) float64 {
		text, err := read(name)
		b.Do(err)
		n, err := strconv.ParseFloat(text, 64)
		b.Do(err)
		return n
	}
	if _, err := os.Stat(filepath.Join(group, "memory.current")); errors.Is(err, fs.ErrNotExist) { // version 1
		return memory{
			stat["rss"], number("memory.kmem.usage_in_bytes"), stat["cache"], number("memory.usage_in_bytes") - stat["inactive_file"],
		}
	}
	return memory{stat["anon"], stat["kernel"], stat["file"], number("memory.current") - stat["inactive_file"]}
}
