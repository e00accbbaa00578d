package main

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/dupip/dupip/internal/testneeds"
	"github.com/dupip/dupip/tests/lab"
	"github.com/dupip/dupip/tests/release/releasetest"
)

// testVersion is the version of the releases that tests make.
const testVersion = "0.2.0-rc.1"

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

// A release that is made twice is the same twice. It is verified, and neither any damage nor what the key's owner has signed by
// mistake is. Its packages are installed, started and removed.
func TestRelease(t *testing.T) {
	testneeds.Release(t)
	testneeds.Program(t, "rpm", "rpm")
	t.Setenv("COSIGN_PASSWORD", releasetest.Password) // that releases are signed again
	keys := releasetest.Keys(t)
	first := release{testVersion, releasetest.Make(t, "first", testVersion, keys+".key")}
	second := releasetest.Make(t, "the second, in a deeper folder/with/sources", testVersion, "", "umask 077; TMPDIR=\"$PWD/..\" TZ=Pacific/Kiritimati SOURCE_DATE_EPOCH=1 LC_ALL=C HOSTNAME=other")
	out, err := exec.CommandContext(t.Context(), "diff", "-r", "--exclude=*.sig", "--exclude="+provenanceFile, first.dir, second).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("two releases of one commit differ: %v\n%s", err, out)
	}
	list, err := exec.CommandContext(t.Context(), "ls", "-l", first.dir).Output()
	if t.Logf("%s", list); err != nil {
		t.Error(err)
	}

	t.Run("verified", func(t *testing.T) {
		if err := first.verify(t.Context(), keys+".pub"); err != nil {
			t.Error(err)
		}
		cmd := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", sumsFile)
		cmd.Dir = first.dir
		if out, err := cmd.CombinedOutput(); err != nil || strings.Count(string(out), ": OK\n") != len(first.files()) {
			t.Errorf("sha256sum: %v\n%s", err, out)
		}
	})
	t.Run("damaged", func(t *testing.T) { testDamaged(t, first, keys+".pub") })
	t.Run("signed by mistake", func(t *testing.T) { testMistakes(t, first, keys) })
	// The test has shown that it is whole again.
	if err := first.verify(t.Context(), keys+".pub"); err != nil {
		t.Error(err)
	}
	t.Run("published", func(t *testing.T) { testPublished(t, first, keys) })
	for name, commands := range map[string]packageCommands{
		"deb": {
			install: []string{"dpkg", "--force-unsafe-io", "-i", first.path(first.deb(runtime.GOARCH))},
			remove:  []string{"dpkg", "--force-unsafe-io", "-r", "dupip"},
			purge:   []string{"dpkg", "--force-unsafe-io", "-P", "dupip"},
		},
		// Debian's rpm wants to be forced.
		"rpm": {
			install: []string{"rpm", "--force-debian", "--nodeps", "--replacepkgs", "-U", first.path(first.rpm(runtime.GOARCH))},
			remove:  []string{"rpm", "--force-debian", "-e", "dupip"},
		},
	} {
		t.Run(name, func(t *testing.T) { testPackage(t, commands) })
	}
}

// testDamaged changes one byte of each file in turn.
func testDamaged(t *testing.T, r release, key string) {
	entries, err := os.ReadDir(r.dir)
	if want := len(r.files()) + 4; err != nil || len(entries) != want {
		t.Fatalf("%d files, %v, want %d", len(entries), err, want)
	}
	for _, e := range entries {
		change(t, r, e.Name(), func() {
			err := r.verify(t.Context(), key)
			if err == nil {
				t.Errorf("%s: a changed byte is not noticed", e.Name())
				return
			}
			reason, _, _ := strings.Cut(err.Error(), "\n")
			t.Logf("%-45s %.150s", e.Name(), reason[max(0, len(reason)-150):])
		})
	}
}

// testMistakes changes one byte of each file in turn, and then makes checksums, provenance and signatures as if that were right.
func testMistakes(t *testing.T, r release, keys string) {
	former := contents(t, r, sumsFile, sumsFile+signature, provenanceFile, provenanceFile+signature)
	restore := func() {
		for name, content := range former {
			if err := r.write(name, content); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range append(r.files(), provenanceFile) {
		before := digest(t, r, name)
		change(t, r, name, func() {
			defer restore()
			text := strings.Replace(string(former[provenanceFile]), before, digest(t, r, name), 1)
			sums, err := r.sums()
			if err != nil {
				t.Fatal(err)
			}
			if name == provenanceFile {
				text = strings.Replace(string(former[provenanceFile]), "refs/tags/v", "refs/heads/", 1)
			}
			if err := r.write(sumsFile, sums); err != nil {
				t.Fatal(err)
			}
			if err := r.write(provenanceFile, []byte(text)); err != nil {
				t.Fatal(err)
			}
			if err := r.sign(t.Context(), keys+".key"); err != nil {
				t.Fatal(err)
			}
			err = r.verify(t.Context(), keys+".pub")
			if err == nil || strings.Contains(err.Error(), "verify-blob") || strings.Contains(err.Error(), "is not what") {
				t.Errorf("%s: %v, want an error about what it contains", name, err)
				return
			}
			t.Logf("%-45s %v", name, err)
		})
	}
}

// change changes a byte of a file for a while.
func change(t *testing.T, r release, name string, while func()) {
	t.Helper()
	content := contents(t, r, name)[name]
	content[len(content)/2] ^= 1
	if err := r.write(name, content); err != nil {
		t.Fatal(err)
	}
	while()
	content[len(content)/2] ^= 1
	if err := r.write(name, content); err != nil {
		t.Fatal(err)
	}
}

func contents(t *testing.T, r release, names ...string) map[string][]byte {
	t.Helper()
	all := make(map[string][]byte)
	for _, name := range names {
		content, err := r.read(name)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = content
	}
	return all
}

func digest(t *testing.T, r release, name string) string {
	t.Helper()
	sum := sha256.Sum256(contents(t, r, name)[name])
	return hex.EncodeToString(sum[:])
}

// packageCommands are those of one package manager.
type packageCommands struct{ install, remove, purge []string }

// testPackage installs a package where a real systemd runs, starts the agent, installs it again, and removes it.
func testPackage(t *testing.T, commands packageCommands) {
	testneeds.Program(t, "/lib/systemd/systemd", "systemd")
	l := lab.NewT(t)
	n := l.Node("")
	l.Pod(n, "pod", lab.PodOptions{})
	s := l.Systemd(n)
	// does runs a command, which fails or prints a text.
	does := func(want string, args ...string) {
		t.Helper()
		out, err := s.Run(t.Context(), args...)
		switch {
		case want == "fails" && err == nil:
			t.Errorf("%v prints %q, want a failure", args, out)
		case want != "fails" && (err != nil || !strings.Contains(out, want)):
			t.Errorf("%v prints %q, %v, want %q", args, out, err, want)
		}
	}
	does("fails", "test", "-e", "/usr/bin/dupip")
	does("", commands.install...)
	does("dupip "+testVersion, "/usr/bin/dupip", "version")
	does("dupip-explain - Show the history", "sh", "-c", "zcat /usr/share/man/man8/dupip-explain.8.gz")
	does("700 root:root", "stat", "-c", "%a %U:%G", "/etc/dupip")
	does("inactive", "systemctl", "show", "dupip", "-p", "ActiveState")
	does("", "systemctl", "enable", "--now", "dupip")
	does("cni0", "dupip", "bindings", "-o", "wide")
	pid, err := s.Run(t.Context(), "systemctl", "show", "dupip", "-p", "MainPID")
	if err != nil {
		t.Error(err)
	}

	does("", commands.install...)
	does("ActiveState=active", "systemctl", "show", "dupip", "-p", "ActiveState")
	if now, err := s.Run(t.Context(), "systemctl", "show", "dupip", "-p", "MainPID"); err != nil || now == pid {
		t.Errorf("an upgrade does not start the agent again: %s, %v", now, err)
	}

	does("", commands.remove...)
	does("LoadState=not-found", "systemctl", "show", "dupip", "-p", "LoadState")
	for _, path := range []string{"/usr/bin/dupip", "/usr/share/doc/dupip", "/usr/share/man/man8/dupip.8.gz", "/run/dupip", "/etc/systemd/system/multi-user.target.wants/dupip.service"} {
		does("fails", "test", "-e", path)
	}
	does("fails", "pgrep", "-x", "dupip")
	does("state.json", "ls", "/var/lib/dupip")
	if commands.purge != nil {
		does("", commands.purge...)
		does("fails", "test", "-e", "/var/lib/dupip")
		does("fails", "test", "-e", "/etc/default/dupip")
	}
}
