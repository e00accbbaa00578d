package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// What cannot be printed is an error of one line; a reader that has seen enough is none. In both cases kubectl ends.
func TestOutputFails(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	reader, closed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	reader.Close()
	defer closed.Close()
	const audit, name = "audit --exit-code --network ", " -o name"
	for _, args := range []string{
		"", "help", "help nodes", "--help", "--version", "version", "version -o json", "conflicts", "conflicts -o wide", "conflicts --exit-code",
		"conflicts" + name, "conflicts -o yaml", "conflicts --watch", "conflicts --watch -o json", audit + "pods", audit + "other", audit + "lost" + name,
		"nodes", "nodes -o wide", "nodes" + name, "status", "status -o json", "status --node n2", "ui", "__complete conflicts --state=",
	} {
		for _, out := range []*os.File{full, closed} {
			k := newKubectl(t, list(pod("good", "True")))
			var stderr bytes.Buffer
			cmd := exec.CommandContext(t.Context(), os.Args[0], strings.Fields(args)...)
			cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), asPlugin+"=1"), out, &stderr
			err := cmd.Run()
			if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
				t.Fatal(err)
			} else if ok {
				err = exit
			}
			text := stderr.String()
			if _, rest, ok := strings.Cut(text, "Completion ended with directive: ShellCompDirectiveNoFileComp\n"); ok {
				text = rest
			}
			code, want := cmd.ProcessState.ExitCode(), 1
			line := "kubectl dupip: writing the output: write /dev/stdout: no space left on device\n"
			if out == closed {
				want, line = 128+int(syscall.SIGPIPE), ""
			}
			if code != want || text != line {
				t.Errorf("%q into %s: %v, exit %d, want %d\n%s", args, out.Name(), err, code, want, text)
			}
			k.childless()
		}
	}
}
