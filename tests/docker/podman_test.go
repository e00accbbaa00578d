package docker

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/apt"
	"github.com/dupip/dupip/tests/cri"
	"github.com/dupip/dupip/tests/lab"
)

// podmanPackages are Podman, and the libraries that an older machine lacks.
var podmanPackages = []string{
	"podman", "conmon", "netavark", "aardvark-dns", "golang-github-containers-common", "golang-github-containers-image", "runc", "libsubid5",
	"libgpgme11t64", "libassuan9", "libgpg-error0", "libc6", "libgcc-s1", "libseccomp2", "libsqlite3-0", "libglib2.0-0t64", "libsystemd0", "libcap2",
	"libyajl2", "libaudit1", "libcap-ng0", "libselinux1", "libpcre2-8-0", "libattr1", "libacl1", "libbsd0", "libmd0", "libcrypt1", "libatomic1",
	"libffi8", "libzstd1", "liblzma5", "liblz4-1", "zlib1g", "libpam0g", "libsemanage2", "libsepol2", "libbz2-1.0", "libdevmapper1.02.1", "libudev1",
}

const containersConf = `[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
runtime = "runc"
[network]
firewall_driver = "none"
`

// startPodman starts the Podman of one of Debian's suites, in a root of its own.
func startPodman(t *lab.T, n *lab.Node, suite string) *engine {
	t.Helper()
	packages, err := apt.Unpacked(suite, podmanPackages...)
	t.Do(err)
	for _, dir := range []string{"lib", "lib64", "bin", "sbin"} {
		if err := os.Symlink("usr/"+dir, filepath.Join(packages, dir)); !errors.Is(err, fs.ErrExist) {
			t.Do(err)
		}
	}
	for _, dir := range []string{"proc", "sys", "dev", "run", "tmp", "var", "root", "etc/containers/networks"} {
		t.Do(os.MkdirAll(filepath.Join(packages, dir), 0o755))
	}
	t.Do(os.WriteFile(filepath.Join(packages, "etc/resolv.conf"), []byte("nameserver 127.0.0.1\n"), 0o644))
	dir, err := cri.Folder(t.Lab)
	t.Do(err)
	root := filepath.Join(dir, "root")
	file := func(name string) string { return filepath.Join(root, name) }
	t.Do(os.Mkdir(root, 0o755))
	mount := func(source, name, kind string, flags uintptr) { t.Do(unix.Mount(source, file(name), kind, flags, "")) }
	mount(packages, ".", "", unix.MS_BIND)
	mount("", ".", "", unix.MS_PRIVATE)
	mount("/proc", "proc", "", unix.MS_BIND|unix.MS_REC)
	mount("/sys", "sys", "", unix.MS_BIND|unix.MS_REC)
	mount("/dev", "dev", "", unix.MS_BIND)
	for _, name := range []string{"run", "tmp", "var", "root", "etc/containers/networks"} {
		mount("tmpfs", name, "tmpfs", 0)
	}
	t.Do(os.MkdirAll(file("var/tmp"), 0o1777))
	t.Do(os.MkdirAll(file("var/lib"), 0o755))
	t.Do(os.WriteFile(file("run/containers.conf"), []byte(containersConf), 0o600))
	e := &engine{T: t, socket: file("run/podman.sock"), parent: "/" + filepath.Base(dir)}
	cmd := exec.Command("chroot", root, "/usr/bin/podman", "--storage-driver", "vfs", "system", "service", "-t", "0", "unix:///run/podman.sock")
	cmd.Env = append(os.Environ(), "CONTAINERS_CONF=/run/containers.conf", "PODMAN_IGNORE_CGROUPSV1_WARNING=1")
	p, err := n.Launch(cmd)
	t.Do(err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of Podman:\n%s", p.Log())
		}
		// Its name server outlives it.
		data, _ := os.ReadFile(file("run/containers/networks/aardvark-dns/aardvark.pid"))
		if pid, err := strconv.Atoi(strings.TrimSpace(string(data))); err == nil {
			t.Do(unix.Kill(pid, unix.SIGKILL))
		}
	})
	e.begin(filepath.Join(dir, "image.tar"), filepath.Base(dir))
	return e
}
