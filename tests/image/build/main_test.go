package main

import (
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for args, want := range map[string]string{
		"":                                       "",
		"-name registry.example:5000/a/b-c:v1.2": "",
		"-name registry.example/dupip:1.2":       "",
		"-name localhost/dupip:dev -version 1.2": "",
		"-version v1.2.3-rc.1+build_5":           "",
		"-name dupip:1.2":                        "use registry/path:tag",
		"-name library/dupip:1.2":                "use registry/path:tag",
		"-name registry.example/dupip":           "use registry/path:tag",
		"-name registry.example/Dupip:1.2":       "use registry/path:tag",
		"-name registry.example/dupip:1,dest=/x": "use registry/path:tag",
		"-version 1.2;reboot":                    "only letters",
		"-arch amd64,riscv64":                    "unknown architecture",
		"surplus":                                "unexpected argument",
	} {
		_, err := parse(strings.Fields(args))
		switch {
		case err == nil && want != "":
			t.Errorf("%q is accepted, want an error with %q", args, want)
		case err != nil && (want == "" || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

// The order of architectures does not change the archive.
func TestParseSortsArchitectures(t *testing.T) {
	o, err := parse([]string{"-arch", "arm64,amd64,arm64"})
	if want := []string{"amd64", "arm64"}; err != nil || !slices.Equal(o.arches, want) {
		t.Errorf("%v, %v, want %v", o.arches, err, want)
	}
}
