package main

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dupip/dupip/document"
)

// unpack returns the files of an archive, by their names below its folder.
func unpack(t *testing.T, name string) map[string]string {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]string)
	for archive := tar.NewReader(zipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		_, below, _ := strings.Cut(header.Name, "/")
		files[below] = string(data)
	}
}

func TestSysdump(t *testing.T) {
	k := newKubectl(t, list(agent("a", "n1", ""), agent("b", "n2", ""), reporterPod))
	k.reports("a", document.DoctorCheck{Name: "kernel", Status: document.DoctorOK})
	k.write("nodes", list())
	k.write("daemonsets,statefulsets,configmaps", list())
	k.write("events", "LAST SEEN   TYPE\n")
	k.write("log", `level=WARN msg="conflict confirmed" holder1="secret-shop/web-0 on node n2" pod=secret-shop/gone-7 node=n77`+"\n")
	file := filepath.Join(t.TempDir(), "dump.tar.gz")
	out, err := k.dupip("sysdump", "-o", file)
	if err != nil || !strings.Contains(out, "Nothing is missing.") {
		t.Fatalf("%v, %s", err, out)
	}
	files := unpack(t, file)
	for _, name := range []string{
		"README.txt", "SHA256SUMS", "doctor.json", "nodes.json", "conflicts.json", "audit.json", "status/n1.json", "status/n2.json",
		"versions.json", "workloads.json", "pods.json", "events.txt", "logs/a.txt", "logs/b.txt", "logs/good.txt",
	} {
		if files[name] == "" {
			t.Errorf("%s is missing", name)
		}
	}
	if !strings.Contains(files["SHA256SUMS"], "  logs/a.txt\n") || !strings.Contains(files["logs/a.txt"], "secret-shop/web-0") {
		t.Errorf("%s, %s", files["SHA256SUMS"], files["logs/a.txt"])
	}
	if _, err := k.dupip("sysdump", "-o", file); err == nil || !strings.Contains(err.Error(), "is there already") {
		t.Error(err)
	}

	redacted := filepath.Join(t.TempDir(), "redacted.tar.gz")
	if out, err := k.dupip("sysdump", "--redact", "-o", redacted); err != nil {
		t.Fatalf("%v, %s", err, out)
	}
	for name, text := range unpack(t, redacted) {
		for _, w := range word.FindAllString(name+" "+text, -1) {
			if slices.Contains([]string{"n1", "n2", "n3", "n4", "n77", "secret-shop", "web-0", "gone-7"}, w) {
				t.Errorf("%s has %q:\n%s", name, w, text)
			}
		}
		if name == "nodes.json" {
			var doc document.Nodes
			if err := json.Unmarshal([]byte(text), &doc); err != nil || doc.Nodes[0].State != "alive" || doc.Nodes[0].Interfaces["attached"] != 3 {
				t.Errorf("%v, %s", err, text)
			}
		}
	}
}

// What cannot be read is named.
func TestSysdumpWithoutReporter(t *testing.T) {
	k := newKubectl(t, list(agent("a", "n1", "it ended")))
	k.write("log", "a line\n")
	file := filepath.Join(t.TempDir(), "dump.tar.gz")
	out, err := k.dupip("sysdump", "-o", file)
	if flat := strings.Join(strings.Fields(out), " "); err != nil || !strings.Contains(flat, "Missing: nodes.json, conflicts.json, audit.json, status (no reporter is ready") {
		t.Errorf("%v, %s", err, out)
	}
	if files := unpack(t, file); files["doctor.json"] == "" || !strings.Contains(files["README.txt"], "no reporter is ready") {
		t.Errorf("%v", files)
	}
}

// Words that are only parts of others, and dupip's own, stay.
func TestRedact(t *testing.T) {
	d := &dump{files: []dumped{
		{"a.json", []byte(`{"holders": [{"namespace": "shop", "name": "web", "node": "n1"}, {"namespace": "default", "name": "dupip", "node": "n1.example"}], "acknowledged": {"by": "Alice Doe", "seconds": 60}}`)},
		{"b.txt", []byte(`shop/web-0 of web: webinar, n1.example. (n1) default/dupip "shop" Alice by=bob`)},
		{"c.json", []byte(`{"data": {"10.0.0.1": "{\"by\": \"carol\", \"seconds\": 60}"}}`)},
	}, missing: []dumped{{"status/n1.json", []byte("n1 is away")}}}
	d.redact("net")
	if got, want := string(d.files[1].data), `namespace-1/web-0 of pod-1: webinar, node-2. (node-1) default/dupip "namespace-1" person-1 by=person-3`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := string(d.files[2].data); strings.Contains(got, "carol") || !strings.Contains(got, "person-4") {
		t.Error(got)
	}
	if got := d.lacks(); got != "Missing: status/node-1.json (node-1 is away)." {
		t.Error(got)
	}
}
