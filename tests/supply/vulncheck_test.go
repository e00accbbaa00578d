package supply

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dupip/dupip/internal/testneeds"
)

const (
	// The package calls one function of the module and not the other.
	checked    = "./agent/state"
	module     = "github.com/google/renameio/v2"
	called     = "NewPendingFile"
	neverCalls = "Symlink"
)

// A vulnerability that is called fails; one that is not, or none, passes; an unreachable database is
// reported and fails for a release, and any other error of it fails.
func TestVulncheck(t *testing.T) {
	testneeds.Release(t)
	const unreachable = "not checked: the vulnerability database cannot be reached"
	for _, test := range []struct {
		name   string
		env    []string
		pass   bool
		prints string
		never  string
	}{
		{"an empty database", []string{"GOVULNDB=" + database(t, "")}, true, "No vulnerabilities found", unreachable},
		{"a function that is called", []string{"GOVULNDB=" + database(t, called)}, false, "GO-2099-0001", unreachable},
		{"one that is not", []string{"GOVULNDB=" + database(t, neverCalls)}, true, "No vulnerabilities found", unreachable},
		// The program itself is in go's cache by now.
		{"no way out", []string{"GOVULNDB=", "HTTPS_PROXY=http://127.0.0.1:1", "GOPROXY=" + cached(t)}, true, unreachable, "No vulnerabilities found"},
		{"a folder that is missing", []string{"GOVULNDB=file://" + t.TempDir() + "/none"}, false, "no such file", unreachable},
		{"no database", []string{"GOVULNDB=http://127.0.0.1:1"}, false, "unrecognized vulndb format", unreachable},
		{"no way out, for a release", []string{"DUPIP_DATABASE=required", "GOVULNDB=", "HTTPS_PROXY=http://127.0.0.1:1", "GOPROXY=" + cached(t)}, false, "a release must be checked", "No vulnerabilities found"},
		{"a new database, for a release", []string{"DUPIP_DATABASE=required", "GOVULNDB=" + database(t, "")}, true, "No vulnerabilities found", "a release must be checked"},
		{"an old database, for a release", []string{"DUPIP_DATABASE=required", "GOVULNDB=" + oldDatabase(t)}, false, "less than 30 days old", unreachable},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "tests/vulncheck.sh", checked)
			cmd.Dir = root
			cmd.Env = append(os.Environ(), test.env...)
			text, err := cmd.CombinedOutput()
			if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
				t.Fatal(err)
			}
			out := string(text)
			if (err == nil) != test.pass || !strings.Contains(out, test.prints) || strings.Contains(out, test.never) {
				t.Errorf("it ended with %v, want passed: %v, and %q in\n%s", err, test.pass, test.prints, out)
			}
		})
	}
}

// oldDatabase is one that nobody has updated for years.
func oldDatabase(t *testing.T) string {
	t.Helper()
	url := database(t, "")
	path := filepath.Join(strings.TrimPrefix(url, "file://"), "index/db.json")
	if err := os.WriteFile(path, []byte(`{"modified": "2020-01-01T00:00:00Z"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	return url
}

// cached is a proxy that has what was downloaded before.
func cached(t *testing.T) string {
	t.Helper()
	modules, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	return "file://" + strings.TrimSpace(string(modules)) + "/cache/download"
}

// database makes one with a vulnerability in a function of a module, or without any, and
// returns its URL. The form is that of go.dev/doc/security/vuln/database.
func database(t *testing.T, function string) string {
	t.Helper()
	const id, when = "GO-2099-0001", "2099-01-01T00:00:00Z"
	type object = map[string]any
	dir := t.TempDir()
	write := func(path string, doc any) {
		data, err := json.Marshal(doc)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(filepath.Join(dir, path)), 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, path), data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write("index/db.json", object{"modified": when})
	modules := []any{}
	if function != "" {
		modules = append(modules, object{"path": module, "vulns": []any{object{"id": id, "modified": when}}})
		write("ID/"+id+".json", object{
			"schema_version": "1.3.1", "id": id, "modified": when, "published": when,
			"summary": "made up", "details": "made up",
			"affected": []any{object{
				"package": object{"name": module, "ecosystem": "Go"},
				"ranges":  []any{object{"type": "SEMVER", "events": []any{object{"introduced": "0"}}}},
				"ecosystem_specific": object{
					"imports": []any{object{"path": module, "symbols": []any{function}}},
				},
			}},
		})
	}
	write("index/modules.json", modules)
	return "file://" + dir
}
