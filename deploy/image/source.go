package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// source is what git knows of the sources; all of it is empty where git knows nothing.
type source struct {
	version  string
	revision string
	// time stands in for the time of the build: that of the commit, or SOURCE_DATE_EPOCH.
	time time.Time
}

func sourceOf(ctx context.Context) source {
	git := func(args ...string) (string, bool) {
		out, err := exec.CommandContext(ctx, "git", args...).Output()
		return strings.TrimSpace(string(out)), err == nil
	}
	s := source{time: time.Unix(0, 0)}
	status, trusted := git("status", "--porcelain")
	revision, committed := git("rev-parse", "HEAD")
	if trusted && committed {
		s.revision = revision
		if status != "" {
			s.revision += "-dirty"
		}
		s.version, _ = git("describe", "--tags", "--always", "--dirty")
		if !versionPattern.MatchString(s.version) {
			s.version = ""
		}
		if seconds, ok := git("log", "-1", "--format=%ct"); ok {
			s.time = unixTime(seconds, s.time)
		}
	}
	// See https://reproducible-builds.org/specs/source-date-epoch/.
	s.time = unixTime(os.Getenv("SOURCE_DATE_EPOCH"), s.time)
	return s
}

func unixTime(seconds string, otherwise time.Time) time.Time {
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil || n < 0 {
		return otherwise
	}
	return time.Unix(n, 0)
}

// compile puts a binary for each architecture below root, as ARCH/usr/bin/dupip.
func compile(ctx context.Context, root string, o options, src source) error {
	for _, arch := range o.arches {
		bin := filepath.Join(root, arch, "usr", "bin")
		if err := os.MkdirAll(bin, 0o755); err != nil {
			return err
		}
		// Go asks git by itself, and fails where git does not trust the owner of the checkout.
		stamp := "-buildvcs=auto"
		if src.revision == "" {
			stamp = "-buildvcs=false"
		}
		binary := filepath.Join(bin, "dupip")
		env := []string{"CGO_ENABLED=0", "GOOS=linux", "GOARCH=" + arch, "GOAMD64=v1", "GOARM64=v8.0"}
		if err := command(ctx, env, "go", "build", "-trimpath", stamp,
			"-ldflags", "-s -w -X main.version="+o.version, "-o", binary, "github.com/dupip/dupip/cmd/dupip"); err != nil {
			return err
		}
		// Whatever the umask is.
		for _, path := range []string{binary, bin, filepath.Dir(bin), filepath.Join(root, arch)} {
			if err := os.Chmod(path, 0o755); err != nil {
				return err
			}
		}
	}
	return nil
}
