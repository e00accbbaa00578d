package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// A wall clock belongs to the whole machine: no namespace has one of its own (time
// namespaces are about the clocks since boot), and to step it is to step it for
// everybody. So the program is built with a standard library in which time.Now adds what
// a signal has told it to. All else of the agent is as it is.
const (
	stepFile = `package time

import "sync/atomic"

var step atomic.Int64

// Step steps the wall clock of this program by seconds.
func Step(seconds int64) { step.Add(seconds) }

func steppedNow() (sec int64, nsec int32, mono int64) {
	sec, nsec, mono = runtimeNow()
	return sec + step.Load(), nsec, mono
}
`
	stepMain = `package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

func init() {
	signals := make(chan os.Signal, 10)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGUSR2)
	go func() {
		for s := range signals {
			seconds := int64(3600)
			if s == syscall.SIGUSR2 {
				seconds = -seconds
			}
			time.Step(seconds)
			os.Stderr.WriteString("the lab has stepped the clock\n")
		}
	}()
}
`
)

// stepped is what an agent says after a step.
const stepped = "the lab has stepped the clock\n"

// nowFunc is the head of time.Now up to where it reads the clocks.
var nowFunc = regexp.MustCompile(`(?m)^func Now\(\) Time \{\n\tsec, nsec, mono := runtimeNow\(\)$`)

// SteppableBinary is the path of a dupip whose agents have a wall clock of their own, see
// [Agent.StepClock]. It is built at the first call, which takes a minute: all of the
// standard library that knows the time is built anew.
var SteppableBinary = sync.OnceValues(func() (string, error) {
	path, err := buildSteppable()
	if err != nil {
		return "", fmt.Errorf("build dupip with a clock of its own: %w", err)
	}
	return path, nil
})

func buildSteppable() (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	dir, err := TempDir()
	if err != nil {
		return "", err
	}
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", err
	}
	library := filepath.Join(strings.TrimSpace(string(out)), "src", "time")
	source, err := os.ReadFile(filepath.Join(library, "time.go"))
	if err != nil {
		return "", err
	}
	if !nowFunc.Match(source) {
		return "", errors.New("time.Now of this Go is not as the lab knows it: see nowFunc")
	}
	source = nowFunc.ReplaceAllFunc(source, func(head []byte) []byte {
		return []byte(strings.Replace(string(head), "runtimeNow", "steppedNow", 1))
	})
	var overlay struct{ Replace map[string]string }
	overlay.Replace = map[string]string{}
	for i, f := range []struct{ path, text string }{
		{filepath.Join(library, "time.go"), string(source)},
		{filepath.Join(library, "dupip_step.go"), stepFile},
		{filepath.Join(root, "cmd", "dupip", "dupip_step.go"), stepMain},
	} {
		file := filepath.Join(dir, fmt.Sprintf("overlay%d.go", i))
		if err := os.WriteFile(file, []byte(f.text), 0o600); err != nil {
			return "", err
		}
		overlay.Replace[f.path] = file
	}
	list, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, list, 0o600); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "dupip-step")
	// One package at a time: others are measuring.
	build := exec.Command("go", "build", "-p", "1", "-trimpath", "-buildvcs=false", "-overlay", file, "-o", path, "./cmd/dupip")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
}

// StepClock steps the wall clock of an agent an hour forward, or back, and returns when
// that is done. Its node must have had [SteppableBinary] as its Program when it was started.
func (a *Agent) StepClock(forward bool) error {
	if steppable, err := SteppableBinary(); err != nil || a.cmd.Path != steppable {
		return errors.Join(errors.New("this agent has no clock of its own"), err)
	}
	number := unix.SIGUSR2
	if forward {
		number = unix.SIGUSR1
	}
	before := strings.Count(a.Log(), stepped)
	if err := a.Signal(number); err != nil {
		return err
	}
	return Poll(context.Background(), settleTimeout, func() error {
		if strings.Count(a.Log(), stepped) == before {
			return fmt.Errorf("the clock of the agent on %s was not stepped", a.Node.ShortName())
		}
		return nil
	})
}
