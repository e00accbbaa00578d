package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// The wall clock belongs to the whole machine: time namespaces have only the clocks since boot. So
// this program is built with a standard library in which time.Now adds what a signal has set.
const (
	stepFile = `package time

import "sync/atomic"

// Step is what Now adds, in seconds.
var Step atomic.Int64

func steppedNow() (sec int64, nsec int32, mono int64) {
	sec, nsec, mono = runtimeNow()
	return sec + Step.Load(), nsec, mono
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
			time.Step.Add(seconds)
			os.Stderr.WriteString("` + stepped + `\n")
		}
	}()
}
`
	// stepped is what an agent logs after a step.
	stepped = "the clock was stepped"
	// nowHead is the head of time.Now up to where it reads the clocks.
	nowHead = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
)

// SteppableBinary is the path of a dupip whose agents have a wall clock of their own, see
// [Agent.StepClock]. It is built at the first call, which takes a minute, because most of the
// standard library is built again.
var SteppableBinary = sync.OnceValues(func() (string, error) {
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
		return "", fmt.Errorf("find the standard library: %w", err)
	}
	library := filepath.Join(strings.TrimSpace(string(out)), "src", "time")
	source, err := os.ReadFile(filepath.Join(library, "time.go"))
	if err != nil {
		return "", err
	}
	if !strings.Contains(string(source), nowHead) {
		return "", errors.New("time.Now of this Go version is unknown: adapt nowHead")
	}
	overlay := map[string]string{}
	for path, text := range map[string]string{
		filepath.Join(library, "time.go"):                    strings.Replace(string(source), nowHead, strings.Replace(nowHead, "runtime", "stepped", 1), 1),
		filepath.Join(library, "dupip_step.go"):              stepFile,
		filepath.Join(root, "cmd", "dupip", "dupip_step.go"): stepMain,
	} {
		file := filepath.Join(dir, fmt.Sprintf("overlay%d.go", len(overlay)))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return "", err
		}
		overlay[path] = file
	}
	list, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		return "", err
	}
	file, path := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "dupip-step")
	if err := os.WriteFile(file, list, 0o600); err != nil {
		return "", err
	}
	// One package at a time: other tests may be measuring.
	return path, Build(root, path, "./cmd/dupip", "-p=1", "-overlay="+file)
})

// StepClock steps the wall clock of an agent an hour forward, or back. Its node must have had
// [SteppableBinary] as its Program when it was started.
func (a *Agent) StepClock(forward bool) error {
	if steppable, err := SteppableBinary(); err != nil || a.cmd.Path != steppable {
		return errors.Join(errors.New("the clock of this agent cannot be stepped"), err)
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
