package audit

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// other adds an address of the other network to a pod, with a reservation, which then goes: lawful first, and then lost. Or it
// reserves the pod's own address in the other network, too.
func (p *play) other(s *step) {
	pod := p.pick(s)
	if pod == nil || pod.Netns == "" || len(pod.IPs) == 0 {
		return
	}
	ip, own := p.free(s, p.books[1]), s.rand.IntN(3) == 0
	if own {
		ip = pod.IPs[0]
	}
	if !p.claim(ip) {
		return
	}
	defer p.release(ip)
	path := filepath.Join(p.books[1].store, ip.String())
	p.must(s, p.reserve(path, pod.ID+"\r\neth0"))
	defer os.Remove(path)
	if own {
		data, err := os.ReadFile(p.file(ip))
		_ = os.Remove(p.file(ip))
		time.Sleep(s.hold)
		p.done(s)
		if err == nil {
			p.must(s, p.reserve(p.file(ip), string(data)))
		}
		return
	}
	if pod.set(ip, true) {
		time.Sleep(7 * time.Second)
		_ = os.Remove(path)
		time.Sleep(s.hold)
		p.done(s)
		pod.set(ip, false)
	}
}

// wipe moves the whole store away and restores it: what was reserved meanwhile stays.
func (p *play) wipe(s *step) {
	store := p.books[0].store
	away := fmt.Sprintf("%s/away-%d", p.Store(), s.due)
	p.calls.Lock() // an ADD needs its folder
	err := os.Rename(store, away)
	p.calls.Unlock()
	if isMissing(err) {
		return
	}
	p.must(s, err)
	time.Sleep(s.hold)
	p.done(s)
	p.calls.Lock()
	defer p.calls.Unlock()
	entries, err := os.ReadDir(away)
	p.must(s, err)
	p.must(s, os.MkdirAll(store, 0o755))
	for _, e := range entries {
		if err := os.Link(filepath.Join(away, e.Name()), filepath.Join(store, e.Name())); !os.IsExist(err) {
			p.must(s, err)
		}
	}
	p.must(s, os.RemoveAll(away))
}

// spoil puts something that is no file into a store: it cannot be read. host-local reads all files, so it would wait for a
// FIFO in its own store.
func (p *play) spoil(s *step) {
	path := filepath.Join(p.books[0].store, "10.98.9.9")
	var err error
	if s.rand.IntN(2) == 0 {
		path = filepath.Join(p.books[1].store, "10.98.9.9")
		err = unix.Mkfifo(path, 0o600)
	} else {
		err = os.Symlink("nowhere", path)
	}
	if err == nil {
		time.Sleep(s.hold)
		p.done(s)
		_ = os.Remove(path)
	}
}

// freeze stops the runtime's threads.
func (p *play) freeze(s *step) {
	p.calls.Lock()
	defer p.calls.Unlock()
	p.outage(s, func() error { return p.Signal(unix.SIGSTOP) }, func() error { return p.Signal(unix.SIGCONT) })
}

// restart stops the runtime and starts it again.
func (p *play) restart(s *step) {
	p.calls.Lock()
	defer p.calls.Unlock()
	p.outage(s, p.Stop, func() error { return p.Start(p.Context()) })
}

func (p *play) outage(s *step, stop, resume func() error) {
	from := time.Now()
	p.mu.Lock()
	p.frozen = true
	p.mu.Unlock()
	p.must(s, stop())
	time.Sleep(s.hold)
	p.mu.Lock()
	p.frozen, p.thawed = false, time.Now().Add(time.Hour)
	p.mu.Unlock()
	p.must(s, resume())
	p.mu.Lock()
	defer p.mu.Unlock()
	// The agent's pauses between attempts grow with the outage.
	p.thawed = time.Now().Add(time.Since(from) + 5*time.Second)
	p.steps[s.kind]++
}
