package config

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode"
)

// bombs are texts that grow out of a small piece.
func bombs(size int) map[string]string {
	all := make(map[string]string)
	for _, before := range []string{"", "[", "shared: [", "a: \"", "a: |-\n  ", "a: b\n  ", "a: b\n  - ", "a:\n  - "} {
		for _, piece := range []string{
			"[", "{", "]", "- ", "-", "-\n", "? ", "a: ", "a:", "a:\n", ":\n", "\"", "'", "\"a\"\n", "|\n", ">-\n\n", "\n", "\r\n", " ", " \n", "\t", "#", " # x\n", "a", "&a ", "*a ", "!", "!a ", "%",
			":", ": ", ",", "a,", "- a\n", "  - a\n", "- a: b\n", "  a\n", "  -a\n", "x: [a]\n", "[],", "{},", "[a: b],", "\\", "---\n", "--- a\n", "...\n", "é", "a b\n", "<<: ", "- \"\\x41\"\n", "0", "1.", "@", "`",
			"a: &a [*a, *a]\n", "\"\\\n",
		} {
			all[fmt.Sprintf("%q+%q", before, piece)] = before + strings.Repeat(piece, max(size-len(before), 0)/len(piece))
		}
	}
	var nested strings.Builder
	for depth := 0; nested.Len() < size; depth++ {
		nested.WriteString(strings.Repeat(" ", depth) + "a:\n")
	}
	all["nested keys"] = nested.String()[:size]
	all["laughs"] = "a: &a [x,x]\n" + strings.Repeat("b: &b [*a,*a]\n", size/14)
	all["wide"] = "shared:\n" + strings.Repeat("- 10.0.0.1\n", size/11)
	return all
}

// No text costs much, though the parser takes quadratic time and memory for some.
func TestBombs(t *testing.T) {
	for name, text := range bombs(maxContent - 1) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := time.Now()
		_, err := Parse([]byte(text))
		took := time.Since(start)
		runtime.ReadMemStats(&after)
		if allocated := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 10*time.Second || allocated > 128 {
			t.Errorf("%s: %s, %d MiB allocated, %.300v", name, took, allocated, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	example, err := os.ReadFile("example.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(example)
	f.Add([]byte(rules))
	f.Add([]byte(`{"shared": ["::1", 10.0.0.0/8], "limits": {"history": 7}, "networks": [{"name": "a", "solicit": "off"}]}`))
	for _, text := range bombs(64) {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		start := time.Now()
		c, err := Parse(data)
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("took %s", took)
		}
		if (err == nil) != (c != nil) {
			t.Fatalf("%v, %v", c, err)
		}
		if err != nil {
			lines := strings.Split(err.Error(), "\n")
			if len(lines) > maxProblems+1 {
				t.Errorf("%d lines", len(lines))
			}
			for _, line := range lines {
				if len(line) > 600 || strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
					t.Errorf("line %q", line)
				}
			}
			return
		}
		c.Network(Subject{"a", "b", "c"}, ip("10.0.0.1"))
		c.HostNetwork("a", ip("fd00::1"))
		for _, n := range c.Networks() {
			if got, ok := c.named(n.Name + ".100"); !ok || got != n || n.Scope != Cluster && n.Scope != Node {
				t.Errorf("%+v is not found by its VLAN: %+v", n, got)
			}
		}
		for _, p := range c.shared {
			if !c.Shared(p.Addr()) {
				t.Errorf("%s is not shared", p)
			}
		}
		for _, limit := range limits {
			all := c.Limits()
			if n := *limit.field(&all); n < limit.min || n > limit.max {
				t.Errorf("%s: %d", limit.key, n)
			}
		}
	})
}
