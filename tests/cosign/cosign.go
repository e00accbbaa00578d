// Package cosign is the program that signs and verifies releases, built from source by the go command.
package cosign

import (
	"context"
	"fmt"
	"os"
	"os/exec"

	"github.com/dupip/dupip/tests/lab"
)

// Outside of this module: its versions are not cosign's.
const module = "github.com/sigstore/cosign/v2/cmd/cosign@v2.6.5"

// Path is the path of the program.
func Path() (string, error) { return lab.BuildCached(os.TempDir(), module) }

// GenerateKeyPair makes the files prefix.key, which has a password, and prefix.pub.
func GenerateKeyPair(ctx context.Context, prefix, password string) error {
	path, err := Path()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, "generate-key-pair", "--output-key-prefix", prefix)
	cmd.Env = append(os.Environ(), "COSIGN_PASSWORD="+password)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cosign generate-key-pair: %w\n%s", err, out)
	}
	return nil
}
