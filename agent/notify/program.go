package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/dupip/dupip/document"
)

const (
	// maxTold bounds the conflicts whose end the program is told of, maxWaiting those that wait until it is run for them. It is run once at
	// a time, once a second after a burst.
	maxTold    = 1024
	maxWaiting = 64
	burst      = 20
	// maxOutput is how much the program may write before it is a failure, in bytes; maxLines and maxLine are what the log has of it.
	maxOutput = 1 << 20
	maxLines  = 5
	maxLine   = 200
	// pipeTime is how long what the program leaves behind may keep its output open.
	pipeTime = time.Second
)

// runTime is how long the program may take. Tests shorten it.
var runTime = 30 * time.Second

// program runs a program. Its methods but run are safe for concurrent use.
type program struct {
	log     *slog.Logger
	path    string
	as      *syscall.Credential // nil for this process's user
	waiting chan document.ConflictEvent
	counts
}

func newProgram(opts Options) (*program, error) {
	p := &program{log: opts.Log, path: opts.Program, waiting: make(chan document.ConflictEvent, maxWaiting)}
	p.of = document.NotificationStatus{Kind: "program", To: opts.Program}
	var err error
	p.as, err = CheckProgram(opts.Program, opts.User)
	return p, err
}

// CheckProgram refuses a program that somebody else than root, or the user of this process, could replace, and a user that does not exist
// or whose rights this process cannot take. It returns whose rights the program gets, nil for those of this process.
func CheckProgram(path, name string) (*syscall.Credential, error) {
	const to = "--on-conflict %s: "
	as, err := credentials(name)
	if err != nil {
		return nil, err
	}
	if target, err := filepath.EvalSymlinks(path); err != nil {
		return nil, fmt.Errorf(to+"%w", path, err)
	} else if target != path {
		return nil, fmt.Errorf(to+"is a link, give the path of the program itself: %s", path, target)
	}
	for at := path; ; at = filepath.Dir(at) {
		var info unix.Stat_t
		if err := unix.Lstat(at, &info); err != nil {
			return nil, fmt.Errorf(to+"%w", path, err)
		}
		isFile := info.Mode&unix.S_IFMT == unix.S_IFREG
		// In a sticky folder others cannot replace what is root's.
		open := info.Mode&0o022 != 0 && (isFile || info.Mode&unix.S_ISVTX == 0)
		switch {
		case at == path && (!isFile || info.Mode&0o111 == 0):
			return nil, fmt.Errorf(to+"must be a regular file that can be executed (chmod 755)", path)
		case open || info.Uid != 0 && int(info.Uid) != os.Geteuid():
			return nil, fmt.Errorf(to+"others could replace it: %s must belong to root, and only its owner may write to it (mode %04o, owner %d)",
				path, at, info.Mode&0o7777, info.Uid)
		case name != "" && info.Mode&0o001 == 0:
			return nil, fmt.Errorf(to+"user %s cannot run it: everybody must be able to execute %s (chmod o+x)", path, name, at)
		case at == "/":
			return as, nil
		}
	}
}

// needed are the capabilities to take another user's rights, and to end what runs with them.
const needed = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID | 1<<unix.CAP_KILL

// credentials are those of a user, without supplementary groups; nil without a name.
func credentials(name string) (*syscall.Credential, error) {
	if name == "" {
		return nil, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("--on-conflict-user %.64q: there is no such user in /etc/passwd (useradd --system --no-create-home NAME)", name)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
	if err = errors.Join(err, gidErr); err != nil || uid == 0 {
		return nil, fmt.Errorf("--on-conflict-user %s: name an ordinary user, or leave it out", name)
	}
	has, err := capabilities()
	if err != nil || has&needed != needed {
		return nil, fmt.Errorf("--on-conflict-user %s: the agent needs the capabilities SETUID, SETGID and KILL for that "+
			"(deploy/systemd/on-conflict.conf has them)", name)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// offer has the program run for an event, unless too many wait. It does not block.
func (p *program) offer(e document.ConflictEvent) {
	select {
	case p.waiting <- e:
	default:
		p.drop()
	}
}

// run runs the program until ctx ends.
func (p *program) run(ctx context.Context) {
	limit := rate.NewLimiter(1, burst)
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-p.waiting:
			if limit.Wait(ctx) != nil {
				return
			}
			var said output
			began := time.Now()
			err := p.tell(ctx, e, &said)
			if ctx.Err() != nil {
				return
			}
			p.count(1, err)
			level, text := slog.LevelInfo, "told the program of a conflict"
			attributes := []any{"program", p.path, "type", e.Type, "id", e.Conflict.ID, "took", time.Since(began).Round(time.Millisecond)}
			if err != nil {
				level, text, attributes = slog.LevelWarn, "the program was not told of a conflict", append(attributes, "error", reason(err))
			}
			p.log.Log(ctx, level, text, append(attributes, "output", said.lines())...)
		}
	}
}

// tell runs the program with an event, on a thread that ends with it: it has no capability but those to become another user, and can get
// none, and what it starts inherits that (capabilities(7), prctl(2)).
func (p *program) tell(ctx context.Context, e document.ConflictEvent, said *output) error {
	doc, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if _, err := CheckProgram(p.path, ""); err != nil { // it may have changed
		return err
	}
	cmd := exec.Command(p.path)
	cmd.Dir, cmd.Env, cmd.WaitDelay = "/", []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, pipeTime
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(append(doc, '\n')), said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: p.as, Pdeathsig: syscall.SIGKILL}
	ctx, cancel := context.WithTimeout(ctx, runTime)
	defer cancel()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked
		keep := uint64(0)
		if p.as != nil {
			keep = needed
		}
		err := errors.Join(keepOnly(keep), unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		if err == nil {
			err = cmd.Start()
		}
		if err == nil {
			err = wait(ctx, cmd)
		}
		done <- err
	}()
	if err = <-done; said.n > maxOutput {
		err = errOutput // which has closed its output
	}
	return err
}

// wait waits for the program, kills what it leaves in its process group, and all of it when ctx ends.
func wait(ctx context.Context, cmd *exec.Cmd) error {
	kill := func() { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	killed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { kill(); close(killed) })
	// Until it is waited for, nothing else can have its number.
	for unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	late := !stop()
	if late {
		<-killed
	}
	kill()
	err := cmd.Wait()
	switch {
	case late:
		return fmt.Errorf("killed: it took longer than %s", runTime)
	case errors.Is(err, exec.ErrWaitDelay):
		return errors.New("it has left a process that keeps its output open")
	}
	return err
}

// header is that of capget(2) and capset(2) for the calling thread.
func header() *unix.CapUserHeader {
	return &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
}

// capabilities returns the effective ones of the calling thread; all have the same.
func capabilities() (uint64, error) {
	var data [2]unix.CapUserData
	err := unix.Capget(header(), &data[0])
	return uint64(data[1].Effective)<<32 | uint64(data[0].Effective), err
}

// keepOnly drops all other capabilities of the calling thread.
func keepOnly(mask uint64) error {
	var data [2]unix.CapUserData
	if err := unix.Capget(header(), &data[0]); err != nil {
		return fmt.Errorf("reading the capabilities: %w", err)
	}
	for i := range data {
		d, m := &data[i], uint32(mask>>(32*i))
		d.Effective, d.Permitted, d.Inheritable = d.Effective&m, d.Permitted&m, 0
	}
	if err := unix.Capset(header(), &data[0]); err != nil {
		return fmt.Errorf("dropping capabilities: %w", err)
	}
	return nil
}

// output keeps the beginning of what a program writes.
type output struct {
	first []byte
	n     int
}

var errOutput = fmt.Errorf("it has written more than %d bytes", maxOutput)

// Write fails when it is too much, which closes the program's output.
func (o *output) Write(b []byte) (int, error) {
	if o.n += len(b); o.n > maxOutput {
		return 0, errOutput
	}
	o.first = append(o.first, b[:min(len(b), maxLines*maxLine-len(o.first))]...)
	return len(b), nil
}

// lines are the first ones, each clean and short.
func (o *output) lines() string {
	var list []string
	for line := range strings.Lines(string(o.first)) {
		if line = document.Text(strings.Join(strings.Fields(line), " "), maxLine); line != "" && len(list) < maxLines {
			list = append(list, line)
		}
	}
	return strings.Join(list, " / ")
}
