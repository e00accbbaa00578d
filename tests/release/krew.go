package main

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/dupip/dupip/tests/compile"
)

// krewHead begins the manifest by which krew installs kubectl-dupip, see https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/.
const krewHead = `apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: dupip
spec:
  version: v%[1]s
  homepage: https://%[2]s
  shortDescription: Shows duplicate pod IPs
  description: |
    Shows which pods of the cluster have the same IP address, as dupip's agents
    see it on the network, where the address was given, and what to do about it.
  caveats: |
    Needs dupip with its reporter in the cluster, and rights in its namespace:
    https://%[2]s/tree/v%[1]s/deploy#kubectl-dupip
  platforms:
`

// krewPlatform is repeated for each archive.
const krewPlatform = `    - selector:
        matchLabels: {os: %s, arch: %s}
      uri: %s
      sha256: %x
      bin: %s
`

// download is where a file of the release is published.
func (r release) download(name string) string {
	return "https://" + compile.Module + "/releases/download/v" + r.version + "/" + name
}

// krew returns the manifest for the archives.
func (r release) krew() ([]byte, error) {
	var text strings.Builder
	fmt.Fprintf(&text, krewHead, r.version, compile.Module)
	for _, system := range systems {
		for _, arch := range arches {
			name := r.plugin(system, arch)
			archive, err := r.read(name)
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(&text, krewPlatform, system, arch, r.download(name), sha256.Sum256(archive), pluginName)
		}
	}
	return []byte(text.String()), nil
}
