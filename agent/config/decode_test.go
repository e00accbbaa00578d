package config

import (
	"fmt"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode"

	"golang.org/x/sys/unix"
)

// bombs are long texts with a repeated part.
func bombs(size int) map[string]string {
	all := make(map[string]string)
	for _, before := range []string{"", "[", "shared: [", "a: \"", "a: |-\n  ", "a: b\n  ", "a: b\n  - ", "a:\n  - "} {
		for _, piece := range []string{
			"[", "{", "]", "- ", "-", "-\n", "? ", "a: ", "a:", "a:\n", ":\n", "\"", "'", "\"a\"\n", "|\n", ">-\n\n", "\n", "\r\n", " ", " \n", "\t", "#", " # x\n", "a", "&a ", "*a ", "!", "!a ", "%",
			":", ": ", ",", "a,", "- a\n", "  - a\n", "- a: b\n", "  a\n", "  -a\n", "x: [a]\n", "[],", "{},", "[a: b],", "\\", "---\n", "--- a\n", "...\n", "é", "a b\n", "<<: ", "- \"\\x41\"\n", "0", "1.", "@", "`",
			"a: &a [*a, *a]\n", "\"\\\n", "? a\n", "[?", "[a,", "{a:", "#\n", "[a, # a\n", "\"a\": ", "<<: *a\n", "- - ",
		} {
			all[fmt.Sprintf("%q+%q", before, piece)] = before + strings.Repeat(piece, max(size-len(before), 0)/len(piece))
		}
	}
	var nested strings.Builder
	for depth := 0; nested.Len() < size; depth++ {
		nested.WriteString(strings.Repeat(" ", depth) + "a:\n")
	}
	all["nested keys"] = nested.String()[:size]
	for _, pair := range [][2]string{{"[", "]: a"}, {"[a,", "]: a,"}, {"{", "}: a,"}, {"[? ", "]"}, {"[[", "]:a]:a"}, {"[\n", "]"}} {
		for _, depth := range []int{maxDepth, size / (len(pair[0]) + len(pair[1]))} {
			tower := strings.Repeat(pair[0], depth) + strings.Repeat(pair[1], depth) + ","
			all[fmt.Sprintf("%q %d deep", pair, depth)] = strings.Repeat(tower, max(size/len(tower), 1))
		}
	}
	all["keys"] = "networks: [" + strings.Repeat("{"+strings.Repeat("a:,", maxKeys)+"},", 256)
	all["long key"] = strings.Repeat("k", size/2) + ": [" + strings.Repeat("a,", size/4-4) + "]"
	all["laughs"] = "a: &a [x,x]\n" + strings.Repeat("b: &b [*a,*a]\n", size/14)
	all["wide"] = "shared:\n" + strings.Repeat("- 10.0.0.1\n", size/11)
	return all
}

// No text costs much: at most 60 ms and 80 MiB when the machine is idle, and ten times as long with the race detector. Without the
// limits the library takes quadratic time for some texts, 5 s for the worst, or 50 s.
func TestBombs(t *testing.T) {
	all := bombs(MaxSize / 4)
	for name, text := range bombs(MaxSize - 1) {
		if strings.HasPrefix(name, `"["+`) || !strings.Contains(name, `"+"`) {
			all[name+" in full"] = text
		}
	}
	all["comments"] = strings.Repeat("#\n", MaxSize/2)
	all["text like comments"] = `"` + strings.Repeat(" #", MaxSize/2-1)
	all["lines"] = strings.Repeat("\n", MaxSize)
	for name, text := range all {
		limit := time.Second
		if len(text) <= MaxSize/4 {
			limit /= 5
		}
		var before, after runtime.MemStats
		took, err := limit+1, error(nil)
		for tries := 0; took > limit && tries < 5; tries++ { // a busy host takes processor time, too
			runtime.ReadMemStats(&before)
			start := cpuTime(t)
			_, err = Parse([]byte(text))
			took = cpuTime(t) - start
			runtime.ReadMemStats(&after)
		}
		if allocated := (after.TotalAlloc - before.TotalAlloc) >> 20; took > limit || allocated > 128 {
			t.Errorf("%s: %s, %d MiB allocated, %.300v", name, took, allocated, err)
		}
	}
}

// cpuTime returns the processor time of this process, which depends less on other
// processes than the wall clock.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func FuzzParse(f *testing.F) {
	example, err := os.ReadFile("example.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(example)
	f.Add([]byte(rules))
	f.Add([]byte(`{"shared": ["::1", 10.0.0.0/8], "limits": {"history": 7}, "networks": [{"name": "a", "solicit": "off"}]}`))
	for _, test := range mistakes {
		f.Add([]byte(test.text))
	}
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
		for field, n := range reflect.ValueOf(c.Limits()).Fields() {
			if most := maxLimits["limits."+field.Tag.Get("yaml")]; n.Int() < 1 || n.Int() > int64(most) {
				t.Errorf("%s: %d", field.Name, n.Int())
			}
		}
	})
}
