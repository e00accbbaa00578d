// Command image builds the container image of dupip, as `make image` does: a static binary
// for each architecture, each on an empty root, in one OCI archive.
//
// It needs no network. Buildah or docker makes the images; their archive is then checked
// and written anew, so that equal sources make equal archives. It must not know what the
// image is for, or who imports it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// options are what the flags say.
type options struct {
	name    string   // registry/path:tag
	version string   // what `dupip version` prints; empty: what git says
	output  string   // the archive's path
	arches  []string // GOARCH
	tool    string   // buildah, docker; empty: whichever is there
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	build, err := chooseTool(ctx, o.tool)
	if err != nil {
		return err
	}
	src := sourceOf(ctx)
	if o.version == "" {
		o.version = src.version
	}
	a, err := assemble(ctx, o, src, build)
	if err != nil {
		return err
	}
	// Last of all: writing to a pipe that nobody reads ends the process.
	a.print(os.Stdout, o)
	return nil
}

// assemble writes the archive and leaves nothing else.
func assemble(ctx context.Context, o options, src source, build func(context.Context, job) error) (archive, error) {
	// Everything that is not the archive, the tool's storage too.
	work, err := os.MkdirTemp("", "dupip-image-")
	if err != nil {
		return archive{}, err
	}
	defer remove(work)

	root := filepath.Join(work, "root")
	if err := compile(ctx, root, o, src); err != nil {
		return archive{}, err
	}
	raw := filepath.Join(work, "raw.tar")
	if err := build(ctx, job{
		work: work, root: root, output: raw, name: o.name, arches: o.arches,
		labels: labels(o.version, src.revision), time: src.time,
	}); err != nil {
		return archive{}, err
	}
	return rewrite(raw, o.output, o.name, o.arches, src.time)
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.StringVar(&o.name, "name", "localhost/dupip:dev", "the image's `name`, with a registry and a tag")
	flags.StringVar(&o.version, "version", "", "what dupip version prints (default what git says)")
	flags.StringVar(&o.output, "o", "bin/dupip-image.tar", "the archive's `path`")
	arches := flags.String("arch", "amd64,arm64", "`architectures`, as Go names them")
	flags.StringVar(&o.tool, "tool", "", "buildah or docker (default whichever is there)")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	o.arches = strings.Split(*arches, ",")
	slices.Sort(o.arches)
	o.arches = slices.Compact(o.arches)
	for _, arch := range o.arches {
		if arch != "amd64" && arch != "arm64" {
			return o, fmt.Errorf("unknown architecture %q: amd64 and arm64 are supported", arch)
		}
	}
	if err := checkName(o.name); err != nil {
		return o, err
	}
	if o.version != "" && !versionPattern.MatchString(o.version) {
		return o, fmt.Errorf("version %q: only letters, digits and . _ + - are allowed", o.version)
	}
	return o, nil
}

var (
	versionPattern = regexp.MustCompile(`^[A-Za-z0-9._+-]+$`)
	// As the distribution's reference grammar has it, less digests.
	namePattern = regexp.MustCompile(`^([A-Za-z0-9.-]+(?::[0-9]+)?)/[a-z0-9]+(?:[._/-]+[a-z0-9]+)*:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)
)

// checkName wants a full name: a runtime takes dupip:1.2 for docker.io/library/dupip:1.2
// and then does not find what it has.
func checkName(name string) error {
	parts := namePattern.FindStringSubmatch(name)
	if parts == nil || (parts[1] != "localhost" && !strings.ContainsAny(parts[1], ".:")) {
		return fmt.Errorf("image name %q: say registry/path:tag, such as localhost/dupip:dev", name)
	}
	return nil
}

func labels(version, revision string) []string {
	var l []string
	for _, label := range [][2]string{{"version", version}, {"revision", revision}} {
		if label[1] != "" {
			l = append(l, "org.opencontainers.image."+label[0]+"="+label[1])
		}
	}
	return l
}

// remove removes a folder; an ordinary user's storage has folders that may not be written.
func remove(dir string) {
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	_ = os.RemoveAll(dir)
}

// command runs a command and shows what it says only when it fails.
func command(ctx context.Context, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	// Its children, too, have time to go.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	if err != nil {
		return fmt.Errorf("running %s: %w\n%s", filepath.Base(name), err, strings.TrimSpace(string(out)))
	}
	return nil
}
