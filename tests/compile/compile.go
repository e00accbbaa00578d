// Package compile builds the product's programs as releases have them: static, without the paths of the
// machine, and equal for equal sources and one version of Go. The current directory must be the product's.
package compile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Module is the path of the module.
const Module = "github.com/dupip/dupip"

// Source describes the sources. Its strings are empty if git is missing or does not trust the owner of
// the checkout.
type Source struct {
	Version  string    // what git describes
	Revision string    // the commit, with -dirty if files differ from it
	Created  time.Time // of the commit or SOURCE_DATE_EPOCH, never of the build
}

// SourceOf returns the sources in the current directory.
func SourceOf(ctx context.Context) Source {
	git := func(args ...string) (string, bool) {
		out, err := exec.CommandContext(ctx, "git", args...).Output()
		return strings.TrimSpace(string(out)), err == nil
	}
	s := Source{Created: time.Unix(0, 0)}
	status, trusted := git("status", "--porcelain")
	commit, committed := git("log", "-1", "--format=%H %ct")
	if trusted && committed {
		revision, seconds, _ := strings.Cut(commit, " ")
		s.Revision, s.Created = revision, unixTime(seconds, s.Created)
		if status != "" {
			s.Revision += "-dirty"
		}
		s.Version, _ = git("describe", "--tags", "--always", "--dirty")
		if !VersionPattern.MatchString(s.Version) {
			s.Version = ""
		}
	}
	// See https://reproducible-builds.org/specs/source-date-epoch/.
	s.Created = unixTime(os.Getenv("SOURCE_DATE_EPOCH"), s.Created)
	return s
}

func unixTime(seconds string, otherwise time.Time) time.Time {
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil || n < 0 {
		return otherwise
	}
	return time.Unix(n, 0)
}

// VersionPattern matches what a program may say of itself.
var VersionPattern = regexp.MustCompile(`^[A-Za-z0-9._+-]+$`)

// Program builds the program in the folder of this module, such as cmd/dupip, for a GOOS and a GOARCH. It writes the program to
// path and returns its content. The program says that it has the version.
func Program(ctx context.Context, path, folder, goos, goarch, version string, src Source) ([]byte, error) {
	stamp := "-buildvcs=auto"
	if src.Revision == "" {
		stamp = "-buildvcs=false" // Go runs git, too, and would fail
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", stamp, "-ldflags", "-s -w -X main.version="+version,
		"-o", path, Module+"/"+folder)
	// GOFLAGS replaces the user's, which could change the program.
	cmd.Env = append(os.Environ(), "GOFLAGS=-trimpath", "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch, "GOAMD64=v1", "GOARM64=v8.0")
	// Go removes its temporary files when it is interrupted.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return nil, errors.New("interrupted")
	}
	if err != nil {
		return nil, fmt.Errorf("building %s for %s/%s: %w\n%s", folder, goos, goarch, err, strings.TrimSpace(string(out)))
	}
	return os.ReadFile(path)
}
