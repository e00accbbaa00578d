package cluster_test

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
)

// printed are the lines of a text that are commands for a shell.
func printed(text string) (commands []string) {
	joined := strings.ReplaceAll(text, "\\\n", "")
	for _, line := range regexp.MustCompile(`(?m)^ {4,}((kubectl|crictl|ip) .*)$`).FindAllStringSubmatch(joined, -1) {
		commands = append(commands, strings.Join(strings.Fields(line[1]), " "))
	}
	return commands
}

// section returns what is below a heading of a page.
func section(t testing.TB, path, heading string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, below, ok := strings.Cut(string(text), "\n"+heading+"\n")
	if !ok {
		t.Fatal(errors.New(path + " has no " + heading))
	}
	level, _, _ := strings.Cut(heading, " ")
	below, _, _ = strings.Cut(below, "\n"+level+" ")
	return below
}

// scripts are the commands for a shell in a part of a page.
func scripts(text string) (blocks []string) {
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(text, -1) {
		blocks = append(blocks, block[1])
	}
	return blocks
}
