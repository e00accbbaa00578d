package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	// hintAfter is when people, who do not see what kubectl prints, are told that it may want them to log in.
	hintAfter = 5 * time.Second
	// endTime is how long kubectl may take to end.
	endTime = 2 * time.Second
)

// passed are kubectl's flags that are passed on to it: how it reaches the API server, and as whom.
var passed = []struct{ name, usage string }{
	{"kubeconfig", "`file` that kubectl reads"},
	{"context", "`name` of the kubeconfig's context"},
	{"user", "`name` of the kubeconfig's user"},
	{"as", "`user` to impersonate"},
	{"as-group", "`group` to impersonate; repeatable"},
	{"as-uid", "`UID` to impersonate"},
	{"request-timeout", "`time` that a request of kubectl to the API server may take"},
}

// command returns a command of kubectl in dupip's namespace. It ends with ctx, and with it what it has started.
func (p *plugin) command(ctx context.Context, args ...string) (*exec.Cmd, *messages) {
	flags := []string{"--namespace=" + p.namespace}
	for _, flag := range passed {
		for _, value := range *p.connection[flag.name] {
			flags = append(flags, "--"+flag.name+"="+value)
		}
	}
	end := slices.Index(args, "--") // what follows is for a program in a pod
	if end < 0 {
		end = len(args)
	}
	args = slices.Insert(slices.Clone(args), end, flags...)
	cmd, stderr := exec.CommandContext(ctx, cmp.Or(os.Getenv("KUBECTL"), "kubectl"), args...), &messages{most: maxMessages}
	cmd.Stderr, cmd.WaitDelay = stderr, endTime
	return cmd, stderr
}

var (
	errForbidden = errors.New("forbidden")
	// forbidden is what an authorizer says (k8s.io/apiserver/pkg/endpoints/handlers/responsewriters).
	forbidden = regexp.MustCompile(`cannot (\w+) resource "([\w./-]+)"`)
)

// failure says in one line why kubectl has failed.
func (p *plugin) failure(ctx context.Context, err error, stderr *messages) error {
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return errors.New("kubectl was not found: put it into a folder of PATH, or name it with the variable KUBECTL")
	}
	text := string(stderr.text)
	if m := forbidden.FindStringSubmatch(text); m != nil {
		return fmt.Errorf("%w: you may not %s %s in namespace %s; deploy/README.md of dupip has a Role for \"kubectl dupip\"", errForbidden, m[1], m[2], p.namespace)
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return fmt.Errorf("kubectl: %s", cmp.Or(strings.TrimPrefix(lines[len(lines)-1], "error: "), err.Error()))
}

// messages are the end of what kubectl says, up to most bytes: to people, why it fails, as a rule.
type messages struct {
	text []byte
	most int
}

const maxMessages = 16 << 10

// Write implements [io.Writer].
func (m *messages) Write(text []byte) (int, error) {
	m.text = append(m.text, text...)
	m.text = m.text[max(len(m.text)-m.most, 0):]
	return len(text), nil
}
