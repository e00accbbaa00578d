package alerting

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/lab"
)

// stopTimeout is how long a process may take to end when it is asked to.
const stopTimeout = 10 * time.Second

// process is a program in the netns of a node.
type process struct {
	cmd    *exec.Cmd
	log    lab.Buffer
	exited chan struct{}
}

// startProcess starts the first of the programs that is installed. The lab ends it.
func startProcess(l *lab.Lab, n *lab.Node, programs []string, args ...string) (*process, error) {
	var path string
	var missing error
	for _, name := range programs {
		if path, missing = exec.LookPath(name); missing == nil {
			break
		}
	}
	if missing != nil {
		return nil, fmt.Errorf("%w; tests/install.sh test installs it", missing)
	}
	p := &process{cmd: exec.Command(path, args...), exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	if err := n.Launch(p.cmd, func(error) { close(p.exited) }); err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	l.OnClose(p.stop)
	return p, nil
}

// stop ends the process. It may be called more than once.
func (p *process) stop() error {
	_ = p.cmd.Process.Signal(unix.SIGTERM)
	select {
	case <-p.exited:
		return nil
	case <-time.After(stopTimeout):
	}
	_ = p.cmd.Process.Kill()
	<-p.exited
	return fmt.Errorf("%s had to be killed %v after SIGTERM\n%s", p.cmd.Path, stopTimeout, &p.log)
}

// getJSON decodes what a URL answers; into nil only looks whether it does.
func getJSON(ctx context.Context, client *http.Client, url string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("get %s: %s", url, response.Status)
	}
	if into == nil {
		return nil
	}
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		return fmt.Errorf("decode %s: %w", url, err)
	}
	return nil
}
