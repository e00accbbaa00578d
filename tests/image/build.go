// Package image builds the container image as `make image` does, for its own test and for
// tests that run it. It must not know how it is built.
package image

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// Variable names the environment variable with the path of an archive that is to be used
// instead of building one.
const Variable = "DUPIP_TEST_IMAGE"

// Name is what the image is called, in [Build]'s archive and in deploy/dupip.yaml.
const Name = "localhost/dupip:dev"

// Build puts the archive into dir and returns its path. It holds the image for this
// machine's architecture only, which is all that a runtime here needs and takes a tenth of
// the time where nothing is in go's cache. It is what DUPIP_TEST_IMAGE names where that is set.
func Build(ctx context.Context, dir string) (string, error) {
	if path := os.Getenv(Variable); path != "" {
		return filepath.Abs(path)
	}
	path := filepath.Join(dir, "dupip-image.tar")
	_, err := Make(ctx, path, "-name", Name, "-arch", runtime.GOARCH)
	return path, err
}

// Make runs the program behind `make image` with flags of its own and returns its output.
func Make(ctx context.Context, path string, flags ...string) (string, error) {
	// Packages of tests are one folder below the root of their module.
	args := append([]string{"run", "-C", "..", "./image/build", "-o", path}, flags...)
	out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("building the image: %w\n%s", err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}
