package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/dupip/dupip/tests/lab"
	"github.com/dupip/dupip/tests/schema"
)

// validator is the schema of one document, as it is published and without leave for other fields.
type validator struct{ published, strict *jsonschema.Schema }

func validatorOf(t *testing.T, doc string) validator {
	t.Helper()
	published, err := os.ReadFile("../" + schema.File)
	if err != nil {
		t.Fatal(err)
	}
	strict, err := schema.Make(true, "")
	if err != nil {
		t.Fatal(err)
	}
	compile := func(data []byte) *jsonschema.Schema {
		t.Helper()
		content, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		c := jsonschema.NewCompiler()
		c.AssertFormat()
		if err := c.AddResource("api.schema.json", content); err != nil {
			t.Fatal(err)
		}
		return c.MustCompile("api.schema.json#/$defs/" + doc)
	}
	return validator{compile(published), compile(strict)}
}

// validate returns why a document is not as published, or has more than the Go types.
func (v validator) validate(data string) error {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(data))
	if err != nil {
		return err
	}
	if err := v.published.Validate(doc); err != nil {
		return fmt.Errorf("as published: %w", err)
	}
	return v.strict.Validate(doc)
}

// checkDocuments checks what commands print in JSON about addresses.
func checkDocuments(t *testing.T, a *lab.Agent, addresses ...string) {
	t.Helper()
	commands := []struct{ args, doc string }{
		{"audit", "Audit"},
		{"audit --cluster", "Audit"},
		{"bindings", "Bindings"},
		{"bindings --cluster", "Bindings"},
		{"bindings --ip 10.9.9.9", "Bindings"},
		{"conflicts", "Conflicts"},
		{"conflicts --cluster --all", "Conflicts"},
		{"conflicts --state suspected", "Conflicts"},
		{"nodes", "Nodes"},
		{"nodes --state dead", "Nodes"},
		{"status", "Status"},
		{"doctor", "DoctorReport"},
	}
	for _, ip := range addresses {
		commands = append(commands, struct{ args, doc string }{"explain " + ip, "Explanation"})
	}
	for _, tt := range commands {
		got := dupip(t, nil, append(strings.Fields(tt.args), "-o", "json", "--api-socket", a.Socket)...)
		if err := validatorOf(t, tt.doc).validate(got.stdout); err != nil {
			t.Errorf("dupip %s -o json: %v\n%s", tt.args, err, got.stdout)
		}
	}
}

// An agent that is alone and has seen nothing has lists without elements, not null.
func TestSchemaOfNothing(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	checkDocuments(t, l.Agent(l.Node("")), "10.9.9.9", "127.0.0.1")
}

// All documents are as the published schema has them, and the schema has all of their fields.
func testSchema(t *testing.T, s *shown) {
	across := s.across.String()
	checkDocuments(t, s.first.agent, across, s.local.String(), s.past.String(), "10.9.9.9")
	if err := validatorOf(t, "Version").validate(dupip(t, nil, "version", "-o", "json").stdout); err != nil {
		t.Errorf("dupip version -o json: %v", err)
	}
	if err := validatorOf(t, "Configuration").validate(dupip(t, nil, "config", "check", "-", "-o", "json").stdout); err != nil {
		t.Errorf("dupip config check -o json: %v", err)
	}
	for path, doc := range map[string]string{
		"audit?cluster=1":           "Audit",
		"bindings?cluster=1":        "Bindings",
		"conflicts?cluster=1&all=1": "Conflicts",
		"explain?ip=" + across:      "Explanation",
		"captures?ip=" + across:     "Captures",
		"captures?ip=10.9.9.9":      "Captures",
		"nodes":                     "Nodes",
		"status":                    "Status",
		"nothing":                   "Error",
		"status?all=1":              "Error",
	} {
		if err := validatorOf(t, doc).validate(s.get("/v1/" + path).body); err != nil {
			t.Errorf("GET /v1/%s: %v", path, err)
		}
	}
	for args, doc := range map[string]string{
		"conflicts --watch":           "ConflictEvent",
		"conflicts --watch --cluster": "ConflictEvent",
		"bindings --watch":            "BindingEvent",
	} {
		v := validatorOf(t, doc)
		for _, line := range s.events(t, 2, args) {
			if err := v.validate(line); err != nil {
				t.Errorf("dupip %s -o json: %v\n%s", args, err, line)
			}
		}
	}
	// The schema lets fields come and none go.
	v := validatorOf(t, "Nodes")
	nodes := s.ask("nodes", "-o", "json").stdout
	more, fewer := strings.Replace(nodes, `"state"`, `"news": 1, "state"`, 1), strings.Replace(nodes, `"state"`, `"news"`, 1)
	if err := v.validate(more); err == nil || strings.Contains(err.Error(), "as published") {
		t.Errorf("a document with one more field: %v", err)
	}
	if err := v.validate(fewer); err == nil || !strings.Contains(err.Error(), "as published") {
		t.Errorf("a document with one field less: %v", err)
	}
}

// events are the first lines of a watch in JSON.
func (s *shown) events(t *testing.T, count int, args string) (lines []string) {
	s.Helper()
	next := s.watch(t, append(strings.Fields(args), "-o", "json"), s.first.agent)
	for range count {
		lines = append(lines, next(""))
	}
	return lines
}

// response is what the API answers.
type response struct {
	code int
	body string
}

// get asks the API of the first node as curl does.
func (s *shown) get(path string) response {
	s.Helper()
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", s.first.agent.Socket)
		},
	}}
	got, err := client.Get("http://dupip" + path)
	s.Do(err)
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	s.Do(err)
	return response{got.StatusCode, string(body)}
}

// A script that somebody wrote for the documents works, and it would not if one of its fields were missing.
func testReport(t *testing.T, s *shown) {
	binary, err := lab.Binary()
	s.Do(err)
	// report runs the script with a dupip whose documents pass through a filter.
	report := func(filter string) (string, error) {
		dir := t.TempDir()
		fake := fmt.Sprintf("#!/bin/sh\nset -eu\n'%s' \"$@\" | jq '%s'\n", binary, filter)
		if err := os.WriteFile(filepath.Join(dir, "dupip"), []byte(fake), 0o755); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "sh", "testdata/report.sh", s.across.String())
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "DUPIP_API_SOCKET="+s.first.agent.Socket)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	got, err := report(".")
	if err != nil {
		t.Fatalf("%v:\n%s", err, got)
	}
	first, second := s.first.agent.Node.ShortName(), s.second.agent.Node.ShortName()
	for _, pattern := range []string{
		"(?m)^asked 3 nodes at " + first + "$",
		"(?m)^confirmed " + regexp.QuoteMeta(s.across.String()) + " in default, cross-node, ",
		"(?m)^confirmed " + regexp.QuoteMeta(s.local.String()) + " in default, same-node, ",
		"(?m)^resolved " + regexp.QuoteMeta(s.past.String()) + " in default, same-node, ",
		"(?m)^  shop/web on " + first + " .* behind veth",
		"(?m)^  stage/web on " + second + " .* behind veth",
		"(?m)^" + regexp.QuoteMeta(s.across.String()) + ": shared-range, open: " + first + " and " + second + " give out addresses of one range. ",
		"(?m)^" + regexp.QuoteMeta(s.local.String()) + ": unknown, open: It is not known which holder is right. ",
		"(?m)^  open holder [01] because null, as null says$",
		"(?m)^  If " + second + " is the one with a wrong range: .* && kubectl drain .* on null, cuts all pods of " + second + " but those of DaemonSets",
		"(?m)^  from " + first + " to holder [01] ",
		"(?m)^" + second + " .* alive since ",
		": 3 alive, .*encrypted true, ",
		"runtime containerd .*: true, 2 sandboxes",
		"(?m)^" + regexp.QuoteMeta(s.across.String()) + " in default at " + first + ", " + second,
	} {
		if !regexp.MustCompile(pattern).MatchString(got) {
			t.Errorf("the report has no line %q", pattern)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
	for _, filter := range []string{
		"del(.conflicts[0].holders[0].netns)", ".conflicts[0].holders[1].ifindex = \"7\"", "del(.conflicts[0].judgement.steps)",
		"del(.nodes[0].unacked)", "del(.recordsPending)", "del(.stories[0].notes[0].text)", ".bindings[] |= del(.mac)", "del(.arch)",
	} {
		if changed, err := report(". as $document | try (" + filter + ") catch $document"); err == nil {
			t.Errorf("the script does not notice %s:\n%s", filter, changed)
		}
	}
}
