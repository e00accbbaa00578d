package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// source describes the sources. Its strings are empty if git is missing or does not trust the owner of
// the checkout.
type source struct {
	version  string
	revision string
	created  time.Time // of the commit or SOURCE_DATE_EPOCH, never of the build
}

func sourceOf(ctx context.Context) source {
	git := func(args ...string) (string, bool) {
		out, err := exec.CommandContext(ctx, "git", args...).Output()
		return strings.TrimSpace(string(out)), err == nil
	}
	s := source{created: time.Unix(0, 0)}
	status, trusted := git("status", "--porcelain")
	commit, committed := git("log", "-1", "--format=%H %ct")
	if trusted && committed {
		revision, seconds, _ := strings.Cut(commit, " ")
		s.revision, s.created = revision, unixTime(seconds, s.created)
		if status != "" {
			s.revision += "-dirty"
		}
		s.version, _ = git("describe", "--tags", "--always", "--dirty")
		if !versionPattern.MatchString(s.version) {
			s.version = ""
		}
	}
	// See https://reproducible-builds.org/specs/source-date-epoch/.
	s.created = unixTime(os.Getenv("SOURCE_DATE_EPOCH"), s.created)
	return s
}

func unixTime(seconds string, otherwise time.Time) time.Time {
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil || n < 0 {
		return otherwise
	}
	return time.Unix(n, 0)
}

// programs are what the image has: names in /usr/bin and packages, in the order of the names.
var programs = [][2]string{{"dupip", "github.com/dupip/dupip/cmd/dupip"}, {"dupip-reporter", "github.com/dupip/dupip/cmd/reporter"}}

// compile builds the programs for one architecture in the directory dir and returns their contents.
func compile(ctx context.Context, dir, arch, version string, src source) (contents [][]byte, err error) {
	for _, p := range programs {
		content, err := compileOne(ctx, filepath.Join(dir, p[0]+"-"+arch), p[1], arch, version, src)
		if err != nil {
			return nil, err
		}
		contents = append(contents, content)
	}
	return contents, nil
}

func compileOne(ctx context.Context, path, of, arch, version string, src source) ([]byte, error) {
	stamp := "-buildvcs=auto"
	if src.revision == "" {
		stamp = "-buildvcs=false" // Go runs git, too, and would fail
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", stamp, "-ldflags", "-s -w -X main.version="+version,
		"-o", path, of)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOAMD64=v1", "GOARM64=v8.0")
	// Go removes its temporary files when it is interrupted.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return nil, errors.New("interrupted")
	}
	if err != nil {
		return nil, fmt.Errorf("building for %s: %w\n%s", arch, err, strings.TrimSpace(string(out)))
	}
	return os.ReadFile(path)
}
