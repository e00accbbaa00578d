// Command build builds the container image of dupip, as `make image` does: two static binaries
// for each architecture and nothing else, in one OCI archive.
//
// It runs in the folder tests. It needs only Go, and no network if Go has the modules. Equal sources make equal archives.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/dupip/dupip/tests/compile"
)

// programs are what the image has: names in /usr/bin and folders of the module, in the order of the names.
var programs = []struct{ name, folder string }{{"dupip", "cmd/dupip"}, {"dupip-reporter", "cmd/reporter"}}

// options are the values of the flags.
type options struct {
	name    string   // registry/path:tag
	version string   // what `dupip version` prints; empty: what git describes
	output  string   // path of the archive
	arches  []string // GOARCH
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
	// All paths are from the root of the repository.
	if err := os.Chdir(".."); err != nil {
		return err
	}
	text, err := build(ctx, o)
	if err != nil {
		return err
	}
	fmt.Print(text) // at the end: writing to a closed pipe ends the process
	return nil
}

// build writes the archive and returns a description of it. It leaves no other file.
func build(ctx context.Context, o options) (string, error) {
	src := compile.SourceOf(ctx)
	if o.version == "" {
		o.version = src.Version
	}
	dir, err := os.MkdirTemp("", "dupip-image-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)

	var images []mutate.IndexAddendum
	var sizes strings.Builder
	for _, arch := range o.arches {
		var contents [][]byte
		for _, p := range programs {
			content, err := compile.Program(ctx, filepath.Join(dir, p.name+"-"+arch), p.folder, "linux", arch, o.version, src)
			if err != nil {
				return "", err
			}
			contents = append(contents, content)
		}
		img, err := newImage(arch, contents, containerConfig(o.version, src.Revision), src.Created)
		if err != nil {
			return "", fmt.Errorf("making the image for %s: %w", arch, err)
		}
		m, err := img.Manifest()
		if err != nil {
			return "", fmt.Errorf("making the image for %s: %w", arch, err)
		}
		unpacked := 0
		for _, c := range contents {
			unpacked += len(c)
		}
		fmt.Fprintf(&sizes, "  linux/%s: %.1f MB, unpacked %.1f MB\n", arch, float64(m.Layers[0].Size)/1e6, float64(unpacked)/1e6)
		images = append(images, mutate.IndexAddendum{
			Add: withoutArtifactType{img}, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	idx := mutate.AppendManifests(empty.Index, images...)
	if err := write(o.output, filepath.Join(dir, "layout"), o.name, idx, src.Created); err != nil {
		return "", err
	}
	digest, err := idx.Digest()
	if err != nil {
		return "", err
	}
	to := o.name
	if path, local := strings.CutPrefix(to, "localhost/"); local {
		to = "REGISTRY/" + path
	}
	if o.version == "" {
		o.version = "unknown"
	}
	return fmt.Sprintf("%s, version %s, in %s\n  %s\n%spush it: skopeo copy --all oci-archive:%[3]s docker://%[6]s\n",
		o.name, o.version, o.output, digest, sizes.String(), to), nil
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.StringVar(&o.name, "name", "localhost/dupip:dev", "the image's `name`, with a registry and a tag")
	flags.StringVar(&o.version, "version", "", "what dupip version prints (default what git describes)")
	flags.StringVar(&o.output, "o", "bin/dupip-image.tar", "the archive's `path`")
	arches := flags.String("arch", "amd64,arm64", "`architectures`, as Go names them")
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
	// A registry is required: a runtime reads dupip:1.2 as docker.io/library/dupip:1.2.
	if _, err := name.NewTag(o.name, name.StrictValidation); err != nil {
		return o, fmt.Errorf("image name %q: use registry/path:tag, such as localhost/dupip:dev: %w", o.name, err)
	}
	if o.version != "" && !compile.VersionPattern.MatchString(o.version) {
		return o, fmt.Errorf("version %q: only letters, digits and . _ + - are allowed", o.version)
	}
	return o, nil
}
