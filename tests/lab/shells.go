package lab

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// Program takes the place of one that a test cannot have, such as kubectl where there is no API server. It gets the arguments and the
// standard input, and returns what to print. An error goes to the standard error, and makes the exit code 1.
type Program func(args []string, stdin string) (stdout string, err error)

// Shells run commands as a person does who is logged in to the nodes, or is the cluster's administrator.
type Shells struct {
	t   *T
	all []shell
}

type shell struct {
	name, address string
	netns         *Netns
	programs      string // the folder that is first in PATH
}

// Shells makes that of the administrator, who has these programs and no network. crictl and kubectl fail where nothing takes their
// place: what the machine has is for another cluster.
func (t *T) Shells(programs map[string]Program) *Shells {
	t.Helper()
	n, err := t.newNetns("admin")
	t.Do(err)
	s := &Shells{t: t}
	s.add(shell{netns: n}, programs)
	return s
}

// Add adds a node by the name that steps have for it.
func (s *Shells) Add(name string, n *Node, programs map[string]Program) {
	s.t.Helper()
	s.add(shell{name: name, address: n.Address().String(), netns: n.Netns}, programs)
}

func (s *Shells) add(one shell, programs map[string]Program) {
	s.t.Helper()
	all := make(map[string]Program)
	for _, name := range []string{"crictl", "kubectl"} {
		all[name] = func([]string, string) (string, error) { return "", errors.New(name + ": there is none here") }
	}
	maps.Copy(all, programs)
	one.programs = s.t.serve(all)
	s.all = append(s.all, one)
}

// ShellArgs run a command in a shell with the /sys of its netns, as machines have it. What it mounts and unmounts elsewhere is so for all.
func ShellArgs(command string) []string {
	const enter = `mount --make-rprivate /sys && mount -t sysfs sysfs /sys && exec sh -c "$1"`
	return []string{"unshare", "--mount", "--propagation", "unchanged", "sh", "-c", enter, "sh", command}
}

// Run runs the command of a step on its node.
func (s *Shells) Run(step Step) (string, error) {
	var found []shell
	for _, one := range s.all {
		if one.name == step.Node && (step.Node == "" || step.Address == "" || step.Address == one.address) {
			found = append(found, one)
		}
	}
	if len(found) != 1 {
		return "", fmt.Errorf("%d nodes are %q with address %q", len(found), step.Node, step.Address)
	}
	var out bytes.Buffer
	args := ShellArgs(step.Command)
	cmd := exec.CommandContext(s.t.Context(), args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Env = append(os.Environ(), "PATH="+found[0].programs+":"+os.Getenv("PATH"))
	err := found[0].netns.Exec(cmd.Run)
	return out.String(), err
}

// programVariable makes a test process the program that calls one of another test process: by that socket.
const programVariable = "DUPIP_TEST_PROGRAM"

// call is one of a program, and answer what becomes of it.
type (
	call struct {
		Name  string
		Args  []string
		Stdin string
	}
	answer struct{ Stdout, Failure string }
)

// serve makes a folder with these programs. They end with the test.
func (t *T) serve(programs map[string]Program) (dir string) {
	t.Helper()
	own, err := os.Executable()
	t.Do(err)
	temp, err := TempDir()
	t.Do(err)
	dir, err = os.MkdirTemp(temp, "bin") // short enough for a socket
	t.Do(err)
	listener, err := net.Listen("unix", filepath.Join(dir, "socket"))
	t.Do(err)
	for name := range programs {
		script := fmt.Sprintf("#!/bin/sh\nexport %s=%s/socket\nexec %s %s \"$@\"\n", programVariable, dir, own, name)
		t.Do(os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755))
	}
	var calls sync.WaitGroup
	calls.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			calls.Go(func() {
				defer conn.Close()
				var c call
				if json.NewDecoder(conn).Decode(&c) == nil {
					var a answer
					if a.Stdout, err = programs[c.Name](c.Args, c.Stdin); err != nil {
						a.Failure = err.Error()
					}
					_ = json.NewEncoder(conn).Encode(a)
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		calls.Wait()
		_ = os.RemoveAll(dir)
	})
	return dir
}

// callProgram is the main function of such a program, whose arguments begin with its name. It returns the exit code.
func callProgram(socket string, args []string) int {
	a, err := func() (a answer, err error) {
		stdin, err := io.ReadAll(os.Stdin)
		if err != nil {
			return a, err
		}
		conn, err := net.Dial("unix", socket)
		if err != nil {
			return a, err
		}
		defer conn.Close()
		err = json.NewEncoder(conn).Encode(call{args[0], args[1:], string(stdin)})
		return a, errors.Join(err, json.NewDecoder(conn).Decode(&a))
	}()
	if err != nil {
		a.Failure = err.Error()
	}
	fmt.Print(a.Stdout)
	if a.Failure != "" {
		fmt.Fprintln(os.Stderr, strings.TrimSpace(a.Failure))
		return 1
	}
	return 0
}
