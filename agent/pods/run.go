package pods

import (
	"context"
	"errors"
	"io/fs"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dupip/dupip/agent/books"
	"github.com/dupip/dupip/document"
)

const (
	// Lists are cheap for the runtime, a status is not.
	listsPerSecond, listsBurst       = 2, 10
	statusesPerSecond, statusesBurst = 100, 50
	// batch is how many statuses are read before the list may be read again.
	batch = 16
	// minBackoff is the first pause after a connection was lost that held for stableAfter.
	minBackoff  = 100 * time.Millisecond
	stableAfter = 10 * time.Second
	// minAttempt is the least time between attempts to connect for namespaces without a name.
	minAttempt = time.Second
	// linesBurst log lines about the connection may come at once, then one a minute.
	logBurst = 8
)

// Run reads from the runtime until ctx ends, and returns nil. It connects again after failures.
func (r *Resolver) Run(ctx context.Context) error {
	var looking sync.WaitGroup
	defer looking.Wait()
	looking.Go(func() { r.followContainers(ctx) })
	if len(r.sockets) == 0 {
		<-ctx.Done()
		return nil
	}
	pause := minBackoff
	for {
		began := time.Now()
		rt, err := r.connect(ctx)
		if err == nil {
			err = r.serve(ctx, rt)
			rt.close()
		}
		if ctx.Err() != nil {
			return nil
		}
		r.lost(err)
		if time.Since(began) > stableAfter {
			pause = minBackoff
		}
		r.pause(ctx, pause)
		pause = min(2*pause, r.opts.MaxBackoff)
	}
}

// connect connects to a runtime. If there never was one, libcni's cache takes its place; one that restarts knows more.
func (r *Resolver) connect(ctx context.Context) (*runtime, error) {
	rt, err := connect(ctx, r.sockets)
	if errors.Is(err, ErrNoSocket) && r.Status().Socket == "" {
		if sandboxes, _ := r.cache.List(); len(sandboxes) > 0 {
			return &runtime{name: "libcni's cache", cache: r.cache, sockets: r.sockets}, nil // it has a pod for each netns that is still there
		}
	}
	return rt, err
}

// pause waits before the next attempt. A request ends it early: a runtime must have made that netns.
func (r *Resolver) pause(ctx context.Context, pause time.Duration) {
	wait(ctx, min(pause, minAttempt), nil)
	wait(ctx, pause-minAttempt, r.schedule.wake)
}

// wait waits for a time, for a value from wake or for the end of ctx.
func wait(ctx context.Context, pause time.Duration, wake <-chan struct{}) {
	select {
	case <-wake:
	case <-time.After(pause):
	case <-ctx.Done():
	}
}

// serve follows one runtime until its connection ends or ctx does.
func (r *Resolver) serve(ctx context.Context, rt *runtime) error {
	ctx, end := rt.alive(ctx)
	defer end()
	for list := true; ; list = !time.Now().Before(r.next(&r.schedule)) {
		if list {
			if err := r.list(ctx, rt); err != nil {
				return err
			}
		}
		r.readStatuses(ctx, rt)
		next := r.next(&r.schedule)
		if at, ok := r.table.next(); ok && at.Before(next) {
			next = at
		}
		if wait(ctx, time.Until(next), r.schedule.wake); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// next returns when to read again what a schedule is about, zero for never.
func (r *Resolver) next(s *schedule) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return s.next()
}

func (r *Resolver) list(ctx context.Context, rt *runtime) error {
	if r.lists.Wait(ctx) != nil {
		return context.Cause(ctx)
	}
	began := time.Now()
	r.mu.Lock()
	r.schedule.began(began)
	r.mu.Unlock()
	list, err := rt.list(ctx)
	if err != nil {
		return err
	}
	rt.askConfDir(ctx)
	r.table.update(list)
	ready := make(map[string]bool, len(r.table))
	for id, s := range r.table {
		ready[id] = s.ready
	}
	r.mu.Lock()
	r.listed = Sandboxes{Ready: ready, Listed: began, Complete: len(r.table) == len(list) && rt.cache == nil}
	r.mu.Unlock()
	r.connected(rt, len(list), len(list)-len(r.table))
	r.publish()
	return nil
}

// readStatuses reads the statuses of a batch of sandboxes. It returns at the first timeout.
func (r *Resolver) readStatuses(ctx context.Context, rt *runtime) {
	due := r.table.due(time.Now(), batch)
	if len(due) == 0 {
		return
	}
	defer r.publish()
	for _, s := range due {
		if r.statuses.Wait(ctx) != nil {
			return
		}
		err := r.readStatus(ctx, rt, s)
		switch code := status.Code(err); {
		case err == nil:
		case ctx.Err() != nil:
			return
		case code == codes.NotFound:
			s.done = true // it is gone, or will not be found later either
		default:
			s.failed(time.Now())
			r.setError(err, true)
			r.opts.Log.Debug("reading the status of a sandbox failed", "sandbox", document.Text(s.id, maxText), "error", err)
			if code == codes.DeadlineExceeded {
				return
			}
		}
	}
}

// readStatus reads the pod, the netns and the addresses of a sandbox.
func (r *Resolver) readStatus(ctx context.Context, rt *runtime, s *sandbox) error {
	read, err := rt.read(ctx, s.id)
	if err != nil {
		return err
	}
	if !read.hostNetwork {
		if s.Cookie, err = read.cookie(s.ready); s.Cookie == r.own {
			s.Cookie = 0
		}
	}
	if err != nil && s.ready {
		return err
	}
	// A stopped sandbox is done without a netns: that may be gone.
	s.done, s.Pod, s.Sandbox.VM, s.IPs = true, read.pod, read.vm, read.ips
	if s.Result == nil && s.ready && s.Cookie != 0 {
		s.Result = r.result(s.id, read.info)
	}
	return nil
}

// result returns the result of a sandbox: of libcni's cache, which has the networks apart, or else of the runtime.
func (r *Resolver) result(id string, info []byte) *books.Result {
	entry, err := r.cache.Read(id)
	text := ""
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		text = document.Text(err.Error(), maxText)
	}
	r.mu.Lock()
	known := r.status.CacheError == text
	r.status.CacheError = text
	r.mu.Unlock()
	if !known && text != "" && r.logs.Allow() {
		r.opts.Log.Info("reading libcni's cache failed; a pod's primary interface is known only if the container runtime has its CNI result", "error", err)
	}
	if err == nil {
		return entry.Result
	}
	return books.FromRuntime(info)
}

// connected records that the runtime sent a list, and logs it after a failure.
func (r *Resolver) connected(rt *runtime, sandboxes, omitted int) {
	r.mu.Lock()
	before := r.status
	if r.none = rt.cache != nil; rt.asked {
		r.confDir = rt.confDir
	}
	r.status.RuntimeStatus = document.RuntimeStatus{
		Socket: rt.socket, Name: rt.name, Version: rt.version, Connected: true,
		Sandboxes: sandboxes, SandboxesOmitted: omitted, CacheError: before.CacheError,
	}
	if r.table.failing() {
		r.status.Error = before.Error
	}
	r.schedule.ended(time.Now(), r.opts.Resync)
	r.mu.Unlock()
	text := "connected to the container runtime"
	switch {
	case rt.cache != nil:
		text = "no container runtime; pods have the names in libcni's cache"
	case before.Socket == rt.socket:
		text = "the container runtime is back"
	}
	if (!before.Connected || before.Socket != rt.socket) && r.logs.Allow() {
		r.opts.Log.Info(text, "socket", rt.socket, "runtime", rt.name, "version", rt.version)
	}
}

// lost records that the runtime does not respond, and logs it once.
func (r *Resolver) lost(err error) {
	before := r.Status()
	if errors.Is(err, errAppeared) {
		return // the next attempt is to connect to it
	}
	r.setError(err, false)
	switch {
	case before.Connected:
		if r.logs.Allow() {
			r.opts.Log.Warn("lost the container runtime, new pods have no names until it is back", "error", err)
		}
	case before.Error != "":
	case errors.Is(err, ErrNoSocket):
		r.opts.Log.Info("no container runtime, pods have no names until there is one", "sockets", r.sockets)
	default:
		r.opts.Log.Info("the container runtime does not answer, pods have no names until it does", "error", err)
	}
}

func (r *Resolver) setError(err error, connected bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.Connected, r.status.Error = connected, document.Text(err.Error(), maxText)
	if !connected {
		r.none = r.status.Socket == "" && errors.Is(err, ErrNoSocket)
		r.listed = Sandboxes{}
	}
}
