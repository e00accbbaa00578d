package pods

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/agent/books"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/internal/bounds"
)

const (
	// maxProcesses is how many processes of a netns are asked for their container.
	maxProcesses = 16
	// criFirst is how long a netns waits for the name of a pod, where there is a container runtime.
	criFirst = 2 * time.Second
	// shortContainer is how many characters of the id of a container engines print.
	shortContainer = 12
)

var tooManyContainers = bounds.New("too many containers")

// containers finds the containers of engines without CRI, by the cgroups of processes and by what the engines' sockets answer.
type containers struct {
	log     *slog.Logger
	own     uint64    // inode of the node's netns
	self    container // of this process: what else is in it has been made there, as by tests
	engines []*engine
	lines   *rate.Limiter
	wake    chan struct{} // has a value when the schedule may have changed

	mu       sync.Mutex
	schedule schedule
	// found are the containers by the cookies of their namespaces, listed is when the engines were asked for that, both as of the last look.
	found  map[uint64]Change
	listed time.Time
	status []document.EngineStatus
}

func newContainers(log *slog.Logger, sockets []string) (c *containers, err error) {
	c = &containers{
		log: log, lines: rate.NewLimiter(rate.Every(time.Minute), logBurst), wake: make(chan struct{}, 1),
		self: containerAt(os.Getpid()), schedule: schedule{pending: make(map[uint64]struct{})},
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

// run looks for containers until ctx ends, and calls changed after each look.
func (c *containers) run(ctx context.Context, resync time.Duration, changed func()) {
	for ctx.Err() == nil {
		c.mu.Lock()
		next := c.schedule.next()
		if due := !next.IsZero() && !time.Now().Before(next); !due {
			c.mu.Unlock()
			pause := resync
			if !next.IsZero() {
				pause = time.Until(next)
			}
			wait(ctx, pause, c.wake)
			continue
		}
		began := time.Now()
		c.schedule.began(began)
		before := c.found
		c.mu.Unlock()
		found := c.look(ctx, before)
		c.mu.Lock()
		c.found, c.listed, c.status = found, began, nil
		for _, e := range c.engines {
			if e.status.Name != "" || e.status.Error != "" {
				c.status = append(c.status, e.status)
			}
		}
		for cookie := range found {
			delete(c.schedule.pending, cookie)
		}
		c.schedule.ended(time.Now(), resync)
		if len(found) == 0 {
			c.schedule.ordinary = time.Time{}
		}
		c.mu.Unlock()
		changed()
	}
}

// member is a process in a netns that is in a container.
type member struct {
	container
	pid  int
	path string // of its netns
}

// look finds the containers that run, by the cookies of their namespaces. What is as before stays the same.
func (c *containers) look(ctx context.Context, before map[uint64]Change) map[uint64]Change {
	members := c.members()
	lists := c.list(ctx, members)
	found := make(map[uint64]Change)
	for _, m := range members {
		change, ok := identify(m.container, lists)
		if !ok {
			continue
		}
		cookie, err := netns.CookieAt(m.path)
		if err != nil || containerAt(m.pid) != m.container { // the process has ended, and another one has its id
			continue
		}
		change.Cookie = cookie
		if old := before[cookie]; old.Result != nil && change.Result != nil && slices.Equal(old.Result.Addresses, change.Result.Addresses) {
			change.Result = old.Result
		}
		found[cookie] = change
	}
	return found
}

// members returns a process in a container of each netns that has one.
func (c *containers) members() (members []member) {
	processes := make(map[uint64][]member)
	_ = netns.EachProcess(func(pid int, path string, inode uint64) {
		switch list := processes[inode]; {
		case inode == c.own || len(list) == maxProcesses:
		case list == nil && len(processes) == maxContainers:
			tooManyContainers.Exceeded(1)
		default:
			processes[inode] = append(list, member{pid: pid, path: path})
		}
	})
	for _, list := range processes {
		slices.SortFunc(list, func(a, b member) int { return cmp.Compare(a.pid, b.pid) })
		for _, m := range list { // the first one: others may have entered the netns later
			if m.container = containerAt(m.pid); m.container != (container{}) && m.engine != unit && m.container != c.self {
				members = append(members, m)
				break
			}
		}
	}
	return members
}

// list asks the engines for their containers, by their names; nobody if no container has an id.
func (c *containers) list(ctx context.Context, members []member) map[string]map[string]running {
	lists := make(map[string]map[string]running)
	if !slices.ContainsFunc(members, func(m member) bool { return m.id != "" }) {
		return lists
	}
	for _, e := range c.engines {
		before := e.status.Error
		all, err := e.list(ctx)
		if err != nil && before == "" && c.lines.Allow() {
			c.log.Info("the container engine does not answer; its containers have no names until it does", "socket", e.status.Socket, "error", err)
		}
		if e.status.Name != "" && err == nil {
			lists[e.status.Name] = all
		}
	}
	return lists
}

// identify returns what people call a container: what its engine lists, else what its cgroup says. It reports false for one of an engine that
// is not known and does not list it: it may be a pod, which the container runtime names.
func identify(c container, lists map[string]map[string]running) (Change, bool) {
	for engine, list := range lists {
		l, ok := list[c.id]
		if !ok || c.engine != "" && c.engine != engine {
			continue
		}
		c.engine = engine
		if owner, ok := list[l.in]; ok {
			c.id, l = l.in, owner
		}
		change := Change{Pod: detector.Pod{Engine: engine, Name: cmp.Or(l.name, c.id[:shortContainer]), UID: c.id}}
		if len(l.given) > 0 {
			change.Result = &books.Result{Addresses: l.given, Whole: true}
		}
		return change, true
	}
	text := c.name
	if text == "" && len(c.id) > shortContainer {
		text = c.id[:shortContainer]
	}
	if c.engine == "" || text == "" || !validName(text) {
		return Change{}, false
	}
	return Change{Pod: detector.Pod{Engine: c.engine, Name: text, UID: c.id}}, true
}

// request requests the name of a netns, no earlier than after a pause.
func (c *containers) request(cookie uint64, pause time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.found[cookie]; known {
		c.schedule.relist(time.Now()) // it may have been given another address
	} else if !c.schedule.request(cookie, time.Now().Add(pause)) {
		return
	}
	signal(c.wake)
}

// forget has a netns requested no longer: it has a name.
func (c *containers) forget(cookie uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.schedule.pending, cookie)
}

// relist requests a look if there are containers.
func (c *containers) relist() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.found) > 0 {
		c.schedule.relist(time.Now())
		signal(c.wake)
	}
}

// names returns a copy of what was found.
func (c *containers) names() map[uint64]Change {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := make(map[uint64]Change, len(c.found))
	maps.Copy(names, c.found)
	return names
}

// state returns when the engines were asked last, and how they are.
func (c *containers) state() (listed time.Time, status []document.EngineStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.listed, c.status
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
