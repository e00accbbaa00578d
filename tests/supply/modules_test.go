package supply

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// licences that are compatible with Apache-2.0, by phrases in them. MPL-2.0 requires the sources of
// its own files, which are not changed here.
var licences = []struct{ name, words string }{
	{"Apache-2.0", "Apache License Version 2.0"},
	{"MPL-2.0", "Mozilla Public License"},
	{"BSD", "Redistribution and use in source and binary forms, with or without modification, are permitted"},
	{"MIT", "Permission is hereby granted, free of charge, to any person obtaining a copy"},
	{"ISC", "Permission to use, copy, modify, and/or distribute this software for any purpose"},
}

// Every module that is linked into the program may be.
func TestLicences(t *testing.T) {
	const format = `{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}}{{end}}{{end}}`
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", format, "./cmd/...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := strings.Split(strings.TrimSpace(string(out)), "\n")
	slices.Sort(modules)
	modules = slices.Compact(modules)
	if len(modules) < 20 {
		t.Fatalf("only %d modules", len(modules))
	}
	for _, line := range modules {
		path, dir, _ := strings.Cut(line, " ")
		if name := licence(t, dir); name == "" {
			t.Errorf("%s: no licence that is known here", path)
		} else {
			t.Logf("%-10s %s", name, path)
		}
	}
}

func licence(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if upper := strings.ToUpper(entry.Name()); !strings.HasPrefix(upper, "LICEN") && !strings.HasPrefix(upper, "COPYING") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Join(strings.Fields(string(data)), " ")
		for _, l := range licences {
			if strings.Contains(text, l.words) {
				return l.name
			}
		}
	}
	return ""
}

// Every module that go.mod requires is in CONTRIBUTING.md, with a reason.
func TestDependenciesAreListed(t *testing.T) {
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "\n## Dependencies\n")
	if !found {
		t.Fatal("CONTRIBUTING.md has no section Dependencies")
	}
	table, _, _ = strings.Cut(table, "\n## ")
	listed := make(map[string]bool)
	for _, row := range regexp.MustCompile(`(?m)^\| (.+?) \| .+ \|$`).FindAllStringSubmatch(table, -1) {
		owner := ""
		for name := range strings.SplitSeq(row[1], ", ") {
			if at := strings.LastIndex(name, "/"); at >= 0 {
				owner, name = name[:at], name[at+1:]
			}
			listed[owner+"/"+name] = true
		}
	}
	direct := regexp.MustCompile(`(?m)^\s(\S+) v\S+$`).FindAllStringSubmatch(string(mod), -1)
	if len(direct) < 10 {
		t.Fatalf("only %d direct dependencies", len(direct))
	}
	version := regexp.MustCompile(`/v\d+$`)
	for _, match := range direct {
		name := strings.TrimPrefix(version.ReplaceAllString(match[1], ""), "github.com/")
		if !listed[name] {
			t.Errorf("%s is not in the table of CONTRIBUTING.md", name)
		}
	}
}
