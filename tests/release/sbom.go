package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/dupip/dupip/tests/compile"
)

// modules returns the list of what the programs are made of (SBOM), as Go wrote it into them: a CycloneDX document in JSON. All
// in it follows from the programs.
func (r release) modules(programs []program) ([]byte, error) {
	revision, created, err := commit(programs)
	if err != nil {
		return nil, err
	}
	bom := cdx.NewBOM()
	bom.SerialNumber = serial(r.version + revision)
	product := cdx.Component{
		Type: cdx.ComponentTypeApplication, Name: "dupip", Version: r.version, BOMRef: "dupip",
		PackageURL:         golang(compile.Module, "v"+r.version),
		ExternalReferences: &[]cdx.ExternalReference{{Type: cdx.ERTypeVCS, URL: "https://" + compile.Module, Comment: "commit " + revision}},
	}
	bom.Metadata = &cdx.Metadata{Timestamp: created.UTC().Format(time.RFC3339), Component: &product}

	var components []cdx.Component
	var ids []string
	var needs []cdx.Dependency
	libraries := make(map[string]cdx.Component) // by purl
	for _, p := range programs {
		sum := sha256.Sum256(p.content)
		ids = append(ids, p.id())
		components = append(components, cdx.Component{
			Type: cdx.ComponentTypeApplication, Name: p.name, Version: r.version, BOMRef: p.id(),
			Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
			Properties: &[]cdx.Property{
				{Name: "cdx:gomod:build:env:GOOS", Value: p.system},
				{Name: "cdx:gomod:build:env:GOARCH", Value: p.arch},
			},
		})
		links := []string{}
		link := func(path, version string) {
			purl := golang(path, version)
			libraries[purl] = cdx.Component{Type: cdx.ComponentTypeLibrary, Name: path, Version: version, BOMRef: purl, PackageURL: purl}
			links = append(links, purl)
		}
		link("stdlib", strings.TrimPrefix(p.info.GoVersion, "go"))
		for _, m := range p.info.Deps {
			link(m.Path, m.Version)
		}
		needs = append(needs, cdx.Dependency{Ref: p.id(), Dependencies: &links})
	}
	for _, purl := range slices.Sorted(maps.Keys(libraries)) {
		components = append(components, libraries[purl])
	}
	needs = append(needs, cdx.Dependency{Ref: product.BOMRef, Dependencies: &ids})
	bom.Components, bom.Dependencies = &components, &needs

	var text bytes.Buffer
	// A version that scanners read.
	err = cdx.NewBOMEncoder(&text, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6)
	return text.Bytes(), err
}

// golang returns the URL of a module by the specification of package URLs.
func golang(path, version string) string { return "pkg:golang/" + path + "@" + version }

// serial returns a UUID (RFC 9562, version 8) that follows from a text.
func serial(text string) string {
	u := sha256.Sum256([]byte(text))
	u[6], u[8] = u[6]&0x0f|0x80, u[8]&0x3f|0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:16])
}
