package pods

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// Lists are cheap for the runtime, a status is not; a node that starts has a few
	// hundred to ask for.
	listsPerSecond, listsBurst = 2, 10
	asksPerSecond, asksBurst   = 100, 50
	// batch is how many statuses are asked for before the rest of the work has its turn.
	batch = 16
	// minBackoff is the first pause after a connection was lost. One that held for
	// steadyAfter starts there again.
	minBackoff  = 100 * time.Millisecond
	steadyAfter = 10 * time.Second
	// minAttempt is the shortest time between two attempts to connect that netns without
	// a name lead to.
	minAttempt = time.Second
	// maxSlow is the longest pause after sandboxes whose status did not come in time.
	maxSlow = 5 * time.Second
	// linesBurst is how many log lines about the connection may come at once; then it is
	// one a minute.
	linesBurst = 8
)

// state is what was said last about the connection.
type state uint8

const (
	saidNothing state = iota
	saidAbsent
	saidConnected
	saidLost
)

// follow keeps a connection and the table up to date until ctx ends.
func (r *Resolver) follow(ctx context.Context) {
	pause := minBackoff
	for ctx.Err() == nil {
		began := time.Now()
		rt, err := connect(ctx, r.sockets)
		if err == nil {
			err = r.serve(ctx, rt)
			rt.close()
		}
		if ctx.Err() != nil {
			return
		}
		r.disconnected(err)
		if time.Since(began) > steadyAfter {
			pause = minBackoff
		}
		r.rest(ctx, pause)
		pause = min(2*pause, r.maxBackoff)
	}
}

// rest waits until it is time to connect again. A netns without a name makes that sooner:
// somebody must have made it.
func (r *Resolver) rest(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	wake := r.wake
	if pause <= minAttempt {
		wake = nil
	}
	began := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case <-wake:
			timer.Reset(max(0, minAttempt-time.Since(began)))
			wake = nil
		}
	}
}

// serve follows one runtime until its connection ends or ctx does.
func (r *Resolver) serve(ctx context.Context, rt *runtime) error {
	ctx, end := rt.alive(ctx)
	defer end()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var listAt time.Time
	r.slow, r.askAt = 0, time.Time{}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-r.wake:
		case <-timer.C:
		}
		if now := time.Now(); !now.Before(r.nextList(listAt)) {
			if err := r.relist(ctx, rt); err != nil {
				return err
			}
			listAt = time.Now().Add(r.resync)
		}
		if now := time.Now(); !now.Before(r.askAt) {
			r.askDue(ctx, rt, now)
		}
		next := r.nextList(listAt)
		if due, ok := r.table.next(); ok {
			if due.Before(r.askAt) {
				due = r.askAt
			}
			if due.Before(next) {
				next = due
			}
		}
		timer.Reset(time.Until(next))
	}
}

// nextList returns when the next list is due: at the ordinary time, or earlier because
// something is wanted.
func (r *Resolver) nextList(ordinary time.Time) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wants.due(ordinary)
}

// relist reads the runtime's list.
func (r *Resolver) relist(ctx context.Context, rt *runtime) error {
	if err := r.lists.Wait(ctx); err != nil {
		return context.Cause(ctx)
	}
	r.mu.Lock()
	r.wants.list(time.Now())
	r.mu.Unlock()
	list, err := rt.list(ctx)
	if err != nil {
		return err
	}
	r.table.update(list)
	r.mu.Lock()
	trouble := ""
	if r.table.troubled() {
		trouble = r.status.LastError
	}
	r.status = Status{
		Socket: rt.socket, Runtime: rt.name, Version: rt.version, Connected: true, LastError: trouble, Sandboxes: len(list),
	}
	r.wants.listed(time.Now())
	r.mu.Unlock()
	r.publish()
	r.connected(rt)
	return nil
}

// askDue asks for a batch of sandboxes. When one does not answer in time the others wait:
// the list has its turn first, and the more of them in a row the longer the pause.
func (r *Resolver) askDue(ctx context.Context, rt *runtime, now time.Time) {
	due := r.table.due(now, batch)
	if len(due) == 0 {
		return
	}
	defer r.publish()
	for _, s := range due {
		if r.asks.Wait(ctx) != nil {
			return
		}
		err := r.ask(ctx, rt, s)
		switch {
		case err == nil:
			r.slow = 0
			continue
		case ctx.Err() != nil:
			return
		case status.Code(err) == codes.NotFound:
			delete(r.table.byID, s.id)
			continue
		}
		s.vain(time.Now())
		r.mu.Lock()
		r.status.LastError = printable(err.Error(), maxText)
		r.mu.Unlock()
		r.log.Debug("sandbox without a name", "sandbox", printable(s.id, maxText), "error", err)
		if status.Code(err) == codes.DeadlineExceeded {
			r.slow++
			r.askAt = time.Now().Add(min(time.Duration(r.slow)*statusTimeout, maxSlow))
			return
		}
	}
}

// ask learns what there is to know of a sandbox. An error means that it has to be asked
// for again.
func (r *Resolver) ask(ctx context.Context, rt *runtime, s *sandbox) error {
	answer, err := rt.ask(ctx, s.id)
	if err != nil {
		return err
	}
	told, err := read(answer)
	if err == nil && !told.hostNetwork {
		s.cookie, err = told.cookie(s.ready)
		if s.cookie == r.own {
			s.cookie = 0
		}
	}
	if err != nil && s.ready {
		return err
	}
	// The netns of a sandbox that has stopped may be gone for good.
	s.asked, s.pod, s.ips = true, told.pod, told.ips
	return nil
}

// connected says, once, that the runtime answers.
func (r *Resolver) connected(rt *runtime) {
	if r.said == saidConnected {
		return
	}
	text := "connected to the container runtime"
	if r.said == saidLost {
		text = "the container runtime is back"
	}
	r.said = saidConnected
	if r.lines.Allow() {
		r.log.Info(text, "socket", rt.socket, "runtime", rt.name, "version", rt.version)
	}
}

// disconnected says, once, that the runtime does not answer, or that there is none.
func (r *Resolver) disconnected(err error) {
	r.mu.Lock()
	r.status.Connected, r.status.LastError = false, printable(err.Error(), maxText)
	r.mu.Unlock()
	switch {
	case r.said == saidConnected:
		r.said = saidLost
		if r.lines.Allow() {
			r.log.Warn("lost the container runtime, new pods have no names until it is back", "error", err)
		}
	case r.said != saidNothing:
	case errors.Is(err, ErrNoSocket):
		r.said = saidAbsent
		r.log.Info("no container runtime, pods have no names until there is one", "sockets", r.sockets)
	default:
		r.said = saidAbsent
		r.log.Info("the container runtime does not answer, pods have no names until it does", "error", err)
	}
}
