package pods

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/agent/books"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/internal/bounds"
)

const (
	// criFirst is how long a netns waits for the name of a pod, where there is a container runtime.
	criFirst = 2 * time.Second
	// maxProcesses limits the processes that are looked at, of which pods can start any number.
	maxProcesses = 1 << 17
	// shortContainer is how many characters of the id of a container engines print.
	shortContainer = 12
)

var (
	tooManyContainers = bounds.New("too many containers")
	tooManyProcesses  = bounds.New("too many processes to find their containers")
)

// containers finds the containers of engines without CRI, by the cgroups of processes and by what the engines' sockets answer.
type containers struct {
	log     *slog.Logger
	own     uint64    // inode of the node's netns
	self    container // of this process: what else is in it has been made there, as by tests
	engines []*engine
	lines   *rate.Limiter

	// The lock of [Resolver] guards the rest.
	schedule schedule
	// found are the containers by the cookies of their namespaces, as of the last look; asked are those whose addresses have changed, with
	// when their engines are to be asked.
	found  map[uint64]Change
	asked  map[uint64]time.Time
	status []document.EngineStatus
}

func newContainers(log *slog.Logger, sockets []string) (c *containers, err error) {
	c = &containers{
		log: log, lines: rate.NewLimiter(rate.Every(time.Minute), logBurst),
		self: containerAt(os.Getpid()), schedule: makeSchedule(), asked: make(map[uint64]time.Time),
	}
	if c.own, err = netns.Inode(netns.Self); err != nil {
		return nil, err
	}
	for _, socket := range sockets {
		e, err := newEngine(socket)
		if err != nil {
			return nil, err
		}
		c.engines = append(c.engines, e)
	}
	return c, nil
}

// followContainers looks for containers until ctx ends, and publishes their names after each look.
func (r *Resolver) followContainers(ctx context.Context) {
	c := r.containers
	for ctx.Err() == nil {
		next := r.next(&c.schedule)
		if began := time.Now(); next.IsZero() {
			wait(ctx, r.opts.Resync, c.schedule.wake)
		} else if began.Before(next) {
			wait(ctx, next.Sub(began), c.schedule.wake)
		} else {
			r.mu.Lock()
			c.schedule.began(began)
			before := c.found
			r.mu.Unlock()
			found, status := c.look(ctx, before)
			r.mu.Lock()
			c.settle(found, began)
			c.found, c.status = found, status
			c.schedule.ended(time.Now(), r.opts.Resync)
			if len(found) == 0 {
				c.schedule.ordinary = time.Time{}
			}
			r.merge()
			r.mu.Unlock()
		}
	}
}

// settle notes when the engines were asked for what was found, and plans to ask again.
func (c *containers) settle(found map[uint64]Change, began time.Time) {
	for cookie, change := range found {
		if len(c.engines) == 0 || change.Pod.UID == "" || !strings.HasPrefix(change.Pod.UID, change.Pod.Name) {
			delete(c.schedule.pending, cookie) // else its engine lists it a moment after it was started
		}
		old, known := c.found[cookie]
		if at, asked := c.asked[cookie]; !known || asked && !at.After(began) {
			change.ListedAt = began
			delete(c.asked, cookie)
		} else {
			change.ListedAt = old.ListedAt
		}
		found[cookie] = change
	}
	for cookie, at := range c.asked {
		if _, there := found[cookie]; !there {
			delete(c.asked, cookie)
			continue
		}
		c.schedule.relist(at)
	}
}

// look finds the containers that run, by the cookies of their namespaces. What is as before stays the same, and names stay while their
// engine does not answer.
func (c *containers) look(ctx context.Context, before map[uint64]Change) (map[uint64]Change, []document.EngineStatus) {
	members := c.members()
	lists, status := c.list(ctx, members)
	silent := slices.ContainsFunc(status, func(s document.EngineStatus) bool { return s.Error != "" })
	found := make(map[uint64]Change)
	for _, m := range members {
		change, ok := identify(m.container, lists)
		if !ok && !silent {
			continue
		}
		cookie, err := netns.CookieAt(m.path)
		if err != nil || containerAt(m.pid) != m.container { // the process has ended, and another one has its id
			continue
		}
		old := before[cookie]
		switch {
		case silent && change.Result == nil && old.Cookie != 0:
			change = Change{Pod: old.Pod}
		case !ok:
			continue
		case old.Result != nil && change.Result != nil && slices.Equal(old.Result.Addresses, change.Result.Addresses):
			change.Result = old.Result
		}
		change.Cookie = cookie
		found[cookie] = change
	}
	return found, status
}

// member is the first process of a container.
type member struct {
	container
	pid   int
	path  string // of its netns
	inode uint64
}

// members returns the first processes of the containers that have a netns of their own, at most one of each netns. Other processes may have
// entered another netns, and the containers that share one came later.
func (c *containers) members() (members []member) {
	var all []member
	_ = netns.EachProcess(func(pid int, path string, inode uint64) {
		if len(all) == maxProcesses {
			tooManyProcesses.Exceeded(1)
			return
		}
		all = append(all, member{pid: pid, path: path, inode: inode})
	})
	slices.SortFunc(all, func(a, b member) int { return cmp.Compare(a.pid, b.pid) })
	known, taken := make(map[container]bool), map[uint64]bool{c.own: true}
	for _, m := range all {
		m.container = containerAt(m.pid)
		if m.container == (container{}) || m.engine == unit || m.container == c.self || known[m.container] {
			continue
		}
		if known[m.container] = true; taken[m.inode] {
			continue // on the node's network, or another one's
		}
		if taken[m.inode] = true; len(members) == maxContainers {
			tooManyContainers.Exceeded(1)
			continue
		}
		members = append(members, m)
	}
	return members
}

// list asks the engines for their containers, by their names; nobody if no container has an id.
func (c *containers) list(ctx context.Context, members []member) (lists map[string]map[string]running, status []document.EngineStatus) {
	lists = make(map[string]map[string]running)
	if !slices.ContainsFunc(members, func(m member) bool { return m.id != "" }) {
		return lists, nil
	}
	for _, e := range c.engines {
		before := e.status.Error
		all, err := e.list(ctx)
		if err != nil && before == "" && c.lines.Allow() {
			c.log.Info("the container engine does not answer; its containers have no names until it does", "socket", e.status.Socket, "error", err)
		}
		if err == nil && (e.status.Name == "" || lists[e.status.Name] != nil) { // there is none, or one socket is a link to the other
			continue
		}
		if status = append(status, e.status); err == nil {
			lists[e.status.Name] = all
		}
	}
	return lists, status
}

// identify returns what people call a container: what its engine lists, else what its cgroup says. It reports false for a pod, and for a
// container of an engine that is not known and does not list it: it may be a pod, which the container runtime names.
func identify(c container, lists map[string]map[string]running) (Change, bool) {
	for engine, list := range lists {
		r, ok := list[c.id]
		if !ok || c.engine != "" && c.engine != engine {
			continue
		}
		if owner, ok := list[r.in]; ok {
			c.id, r = r.in, owner
		}
		change := Change{Pod: detector.Pod{Engine: engine, Name: cmp.Or(r.name, c.id[:shortContainer]), UID: c.id}}
		if len(r.given) > 0 {
			change.Result = &books.Result{Addresses: r.given, Whole: true}
		}
		return change, !r.isPod
	}
	text := c.name
	if text == "" && c.id != "" {
		text = c.id[:shortContainer]
	}
	if c.engine == "" || text == "" || !validName(text) {
		return Change{}, false
	}
	return Change{Pod: detector.Pod{Engine: c.engine, Name: text, UID: c.id}}, true
}

// readdressed has the engine of a container asked at a time.
func (c *containers) readdressed(cookie uint64, at time.Time) {
	if _, known := c.found[cookie]; known && !c.asked[cookie].Equal(at) {
		c.asked[cookie] = at
		c.schedule.relist(at)
	}
}

// CheckEngines asks the engines that a [Resolver] with these sockets would ask. It takes at most a second for each. Without an engine at a
// socket there is none.
func CheckEngines(ctx context.Context, socket string) (answers []document.EngineStatus, err error) {
	sockets, err := parseSocket(socket, DefaultEngineSockets)
	for _, socket := range sockets {
		e, failed := newEngine(socket)
		if failed != nil {
			return nil, failed
		}
		if _, failed := e.list(ctx); failed == nil && e.status.Name == "" {
			continue
		}
		answers = append(answers, e.status)
	}
	return answers, err
}
