package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// revision is the commit; the Makefile sets it.
var revision = "unknown"

// header tells where, when and of what the figures are.
func header(took time.Duration) []string {
	return []string{
		fmt.Sprintf("dupip bench, %s, commit %s, took %s", time.Now().Format(time.DateOnly), revision, took.Round(time.Second)),
		fmt.Sprintf("Linux %s, %d cores, %s, %s", kernel(), runtime.NumCPU(), processor(), runtime.Version()),
		"Figures are medians. They are this machine's, with whatever else it did meanwhile.",
	}
}

func kernel() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "of unknown version"
	}
	return unix.ByteSliceToString(name.Release[:])
}

// processor is the model as the kernel names it; arm64 kernels do not.
func processor() string {
	file, err := os.Open("/proc/cpuinfo")
	if err == nil {
		defer file.Close()
		for lines := bufio.NewScanner(file); lines.Scan(); {
			name, value, _ := strings.Cut(lines.Text(), ":")
			if strings.TrimSpace(name) == "model name" {
				value = strings.Join(strings.Fields(value), " ")
				return value[:min(len(value), 45)]
			}
		}
	}
	return runtime.GOARCH
}
