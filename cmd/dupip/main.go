// Command dupip finds duplicate pod IPs by looking at packets.
package main

import (
	"os"

	"github.com/dupip/dupip/cmd/internal/query"
)

// version is set at build time by -ldflags "-X main.version=…".
var version string

// buildVersion is the version of this program.
func buildVersion() string { return query.BuildVersion(version) }

func main() { os.Exit(query.Run(newRoot())) }
