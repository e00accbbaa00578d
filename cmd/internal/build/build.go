// Package build knows which version of this project a program was built from.
package build

import (
	"cmp"
	"runtime/debug"
)

// Version returns the version that a build has set in a program's main.version (-ldflags "-X main.version=…"), else the module's
// version as Go recorded it.
func Version(set string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return cmp.Or(set, info.Main.Version, "(devel)")
	}
	return cmp.Or(set, "(devel)")
}
