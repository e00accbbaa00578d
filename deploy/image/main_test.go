package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	for args, want := range map[string]string{
		"":                                       "",
		"-name registry.example:5000/a/b-c:v1.2": "",
		"-name registry.example/dupip:1.2":       "",
		"-name localhost/dupip:dev -version 1.2": "",
		"-version v1.2.3-rc.1+build_5":           "",
		"-name dupip:1.2":                        "say registry/path:tag",
		"-name library/dupip:1.2":                "say registry/path:tag",
		"-name registry.example/dupip":           "say registry/path:tag",
		"-name registry.example/Dupip:1.2":       "say registry/path:tag",
		"-name registry.example/dupip:1,dest=/x": "say registry/path:tag",
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

func TestChooseTool(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	check := func(tool, want string) {
		t.Helper()
		_, err := chooseTool(t.Context(), tool)
		if (err == nil) != (want == "") || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("tool %q: %v, want %q", tool, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("tool %q: more than a line: %v", tool, err)
		}
	}
	check("", "neither buildah nor docker")
	check("buildah", "install it")
	check("kaniko", "unknown tool")

	// A docker without buildx.
	script(t, dir, "docker", "exit 1")
	check("", "no buildx")
	check("buildah", "install it")
	script(t, dir, "docker", "exit 0")
	check("", "")
	script(t, dir, "buildah", "exit 1")
	check("", "")
	check("docker", "")
}

func script(t *testing.T, dir, name, body string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

// The tools put images into an index in any order, and at any time.
func TestReorder(t *testing.T) {
	var archives [2][]byte
	for i, arches := range [][]string{{"amd64", "arm64"}, {"arm64", "amd64"}} {
		path := filepath.Join(t.TempDir(), "raw.tar")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := twoImages(t, arches...).write(f, time.Now()); err != nil {
			t.Fatal(err)
		}
		f.Close()
		out := path + ".out"
		a, err := rewrite(path, out, "localhost/dupip:dev", []string{"amd64", "arm64"}, time.Unix(1, 0))
		if err != nil {
			t.Fatal(err)
		}
		if len(a.images) != 2 || a.images[0].arch != "amd64" || a.images[0].unpacked != int64(len("layer of amd64")) {
			t.Errorf("it holds %+v", a.images)
		}
		if archives[i], err = os.ReadFile(out); err != nil {
			t.Fatal(err)
		}
		if left, _ := filepath.Glob(filepath.Join(filepath.Dir(out), ".dupip*")); len(left) > 0 {
			t.Errorf("it leaves %v", left)
		}
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("the order of the images shows in the archive")
	}
}

func TestReorderRefuses(t *testing.T) {
	for want, change := range map[string]func(layout){
		"decoding index.json": func(l layout) { delete(l, "index.json") },
		"not hold one index":  func(l layout) { l["index.json"] = []byte(`{"manifests":[]}`) },
		"no image for linux/arm64": func(l layout) {
			for path, data := range twoImages(t, "amd64") {
				l[path] = data
			}
		},
		"is missing": func(l layout) { delete(l, blobPath(digestOf([]byte(`{"architecture":"arm64"}`)))) },
		"is damaged": func(l layout) { l[blobPath(digestOf([]byte(`{"architecture":"arm64"}`)))] = []byte("x") },
	} {
		l := twoImages(t, "amd64", "arm64")
		change(l)
		if _, _, err := reorder(l, "localhost/dupip:dev", []string{"amd64", "arm64"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// twoImages is what a tool writes.
func twoImages(t *testing.T, arches ...string) layout {
	t.Helper()
	encode := func(v any) []byte {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	l := layout{}
	list := index{SchemaVersion: 2, MediaType: indexType}
	for _, arch := range arches {
		var layer bytes.Buffer
		zip := gzip.NewWriter(&layer)
		if _, err := zip.Write([]byte("layer of " + arch)); err != nil {
			t.Fatal(err)
		}
		if err := zip.Close(); err != nil {
			t.Fatal(err)
		}
		m := l.add(manifestType, encode(manifest{
			Config: l.add("application/vnd.oci.image.config.v1+json", []byte(`{"architecture":"`+arch+`"}`)),
			Layers: []descriptor{l.add("application/vnd.oci.image.layer.v1.tar+gzip", layer.Bytes())},
		}))
		m.Platform = &platform{arch, "linux"}
		list.Manifests = append(list.Manifests, m)
	}
	l["index.json"] = encode(index{SchemaVersion: 2, MediaType: indexType, Manifests: []descriptor{l.add(indexType, encode(list))}})
	return l
}
