package audit

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/dupip/dupip/tests/cri"
)

const most = 10

func (p *play) start(s *step) {
	p.calls.RLock()
	defer p.calls.RUnlock()
	p.mu.Lock()
	name, full := fmt.Sprintf("pod%d", p.number), len(p.pods) >= most
	p.number++
	p.mu.Unlock()
	if full {
		return
	}
	made, err := p.RunPod(p.Context(), cri.PodOptions{Namespace: "soak", Name: name, UID: "uid-" + name, HostNetwork: s.rand.IntN(12) == 0})
	if err != nil {
		p.must(s, err)
		return
	}
	pod := &pod{Pod: made}
	if pod.Netns != "" {
		p.must(s, pod.open())
	}
	p.mu.Lock()
	p.pods[pod.ID] = pod
	p.mu.Unlock()
	p.done(s)
}

func (p *pod) open() error {
	file, err := netns.GetFromPath(p.Netns)
	if err != nil {
		return err
	}
	defer file.Close()
	handle, err := netlink.NewHandleAt(file)
	if err != nil {
		return err
	}
	link, err := handle.LinkByName("eth0")
	if err != nil {
		handle.Close()
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handle, p.link = handle, link
	return nil
}

func (p *pod) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.handle != nil {
		p.handle.Close()
		p.handle = nil
	}
}

// stop ends a pod; some are removed later.
func (p *play) stop(s *step) {
	if pod := p.pick(s); pod != nil {
		p.must(s, p.remove(pod, s.rand.IntN(3) == 0))
		p.done(s)
	}
}

// remove ends a pod, once.
func (p *play) remove(pod *pod, slowly bool) error {
	p.calls.RLock()
	defer p.calls.RUnlock()
	p.mu.Lock()
	_, mine := p.pods[pod.ID]
	delete(p.pods, pod.ID)
	p.mu.Unlock()
	if !mine {
		return nil
	}
	pod.close()
	if slowly {
		if err := p.StopPod(p.Context(), pod.Pod); err != nil {
			return err
		}
		time.Sleep(3 * time.Second)
	}
	// As soon as the runtime does not list it any more: the call may return later.
	p.mu.Lock()
	p.ended[pod.ID] = time.Now()
	p.mu.Unlock()
	return p.RemovePod(p.Context(), pod.Pod)
}

// kill ends a sandbox and leaves its netns, and clears up later.
func (p *play) kill(s *step) {
	pod := p.pick(s)
	if pod == nil || pod.killed.Swap(true) {
		return
	}
	p.calls.RLock()
	p.mu.Lock()
	_, here := p.pods[pod.ID]
	p.mu.Unlock()
	var err error
	if here {
		err = p.KillPod(p.Context(), pod.Pod)
	}
	p.calls.RUnlock()
	p.mu.Lock()
	_, here = p.pods[pod.ID]
	p.mu.Unlock()
	if here {
		p.must(s, err)
	}
	time.Sleep(s.hold)
	p.must(s, p.remove(pod, false))
	p.done(s)
}

// held draws a pod with an address and claims that.
func (p *play) held(s *step) (*pod, netip.Addr, bool) {
	pod := p.pick(s)
	if pod == nil || len(pod.IPs) == 0 || pod.Netns == "" || !p.claim(pod.IPs[0]) {
		return nil, netip.Addr{}, false
	}
	return pod, pod.IPs[0], true
}

// lose removes the reservation of a pod and puts it back.
func (p *play) lose(s *step) {
	_, ip, ok := p.held(s)
	if !ok {
		return
	}
	defer p.release(ip)
	data, err := os.ReadFile(p.file(ip))
	if err == nil {
		err = os.Remove(p.file(ip))
	}
	if isMissing(err) {
		return
	}
	p.must(s, err)
	time.Sleep(s.hold)
	p.done(s)
	p.must(s, p.reserve(p.file(ip), string(data)))
}

// reserve makes a reservation, unless there is one, or the store is away.
func (p *play) reserve(path, content string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if os.IsExist(err) || isMissing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = file.WriteString(content)
	_ = file.Close()
	return err
}

// rewrite changes a reservation, in place or by a new file.
func (p *play) rewrite(s *step, path, content string) error {
	if s.rand.IntN(2) == 0 {
		file, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
		if err != nil {
			return err
		}
		_, err = file.WriteString(content)
		_ = file.Close()
		return err
	}
	next := filepath.Join(filepath.Dir(path), "next-"+filepath.Base(path))
	if err := os.WriteFile(next, []byte(content), 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// give gives the reservation of a pod to another one.
func (p *play) give(s *step) {
	pod, ip, ok := p.held(s)
	if !ok {
		return
	}
	defer p.release(ip)
	if to := p.pick(s, pod); to != nil {
		p.change(s, ip, to.ID)
	}
}

// dead gives the reservation of a pod to a sandbox that never existed.
func (p *play) dead(s *step) {
	_, ip, ok := p.held(s)
	if !ok {
		return
	}
	defer p.release(ip)
	p.change(s, ip, p.never(s))
}

// change writes another id into a reservation, and later the former.
func (p *play) change(s *step, ip netip.Addr, id string) {
	data, err := os.ReadFile(p.file(ip))
	if err == nil {
		err = p.rewrite(s, p.file(ip), id+"\r\neth0")
	}
	if isMissing(err) {
		return
	}
	p.must(s, err)
	time.Sleep(s.hold)
	p.done(s)
	if now, err := os.ReadFile(p.file(ip)); err != nil || !strings.HasPrefix(string(now), id) {
		return // a DEL and an ADD meanwhile
	}
	if err := p.rewrite(s, p.file(ip), string(data)); !isMissing(err) {
		p.must(s, err)
	}
}

// never is the id of a sandbox that never existed.
func (p *play) never(s *step) string {
	id := fmt.Sprintf("%016x%016x%016x%016x", s.rand.Uint64(), s.rand.Uint64(), s.rand.Uint64(), s.rand.Uint64())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended[id] = time.Time{}
	return id
}

// free draws an address of a range, which may be in use.
func (p *play) free(s *step, b book) netip.Addr {
	bytes := b.cover.Addr().As4()
	bytes[3] += byte(2 + s.rand.IntN(124))
	return netip.AddrFrom4(bytes)
}

// leak adds a reservation for a sandbox that never existed.
func (p *play) leak(s *step) {
	b := p.books[s.rand.IntN(len(p.books))]
	ip := p.free(s, b)
	if !p.claim(ip) {
		return
	}
	defer p.release(ip)
	id := p.never(s)
	path := filepath.Join(b.store, ip.String())
	p.must(s, p.reserve(path, id+"\r\neth0"))
	time.Sleep(s.hold)
	p.done(s)
	if now, err := os.ReadFile(path); err == nil && strings.HasPrefix(string(now), id) {
		p.must(s, os.Remove(path))
	}
}

// take adds an address to a pod: of the pod's network, of another pod, of another network, or of none.
func (p *play) take(s *step) {
	pod := p.pick(s)
	if pod == nil || pod.Netns == "" {
		return
	}
	ip := netip.MustParseAddr("10.98.7.1")
	switch s.rand.IntN(4) {
	case 0, 1:
		ip = p.free(s, p.books[0])
	case 2:
		ip = p.free(s, p.books[1])
	case 3:
		if victim := p.pick(s, pod); victim != nil && len(victim.IPs) > 0 && victim.Netns != "" {
			ip = victim.IPs[0]
		}
	}
	if !p.claim(ip) {
		return
	}
	defer p.release(ip)
	if pod.set(ip, true) {
		time.Sleep(s.hold)
		p.done(s)
		pod.set(ip, false)
	}
}

// set adds an address to a pod or takes it away. It reports false if the pod has ended, or had the address.
func (p *pod) set(ip netip.Addr, add bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.handle == nil {
		return false
	}
	a := &netlink.Addr{IPNet: netlink.NewIPNet(ip.AsSlice())}
	if add {
		return p.handle.AddrAdd(p.link, a) == nil
	}
	return p.handle.AddrDel(p.link, a) == nil
}
