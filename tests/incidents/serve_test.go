package incidents

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"time"

	"github.com/vishvananda/netns"
)

// helloPort is where a pod sends its name.
const helloPort = 8080

// serve makes the pod send its name to each client. It ends with the result, or with the test; until
// then it holds the pod's netns.
func (p *pod) serve() (end func()) {
	p.m.s.Helper()
	var l net.Listener
	p.m.s.Do(inside(p.Netns, func() (err error) {
		l, err = net.Listen("tcp", fmt.Sprintf(":%d", helloPort))
		return err
	}))
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, p.Name)
			_ = conn.Close()
		}
	}()
	end = func() { _ = l.Close() }
	p.m.s.Cleanup(end)
	return end
}

// whoAnswers connects to an address from the machine itself, as a kubelet's probe does.
func (m *machine) whoAnswers(ip netip.Addr) (name string, err error) {
	err = m.Node.Exec(func() error {
		conn, err := net.DialTimeout("tcp", netip.AddrPortFrom(ip, helloPort).String(), 2*time.Second)
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
			return err
		}
		text, err := io.ReadAll(io.LimitReader(conn, 256))
		name = string(text)
		return err
	})
	return name, err
}

// routeTo is the machine's route to an address.
func (m *machine) routeTo(ip netip.Addr) string {
	return strings.Join(strings.Fields(m.shell("ip", "route", "get", ip.String())), " ")
}

// inside runs f on a thread of the netns with this path. Goroutines that f starts are not
// in it; sockets that f opens stay in it.
func inside(path string, f func() error) error {
	result := make(chan error, 1)
	go func() {
		// The thread is never unlocked, so it ends with this goroutine.
		runtime.LockOSThread()
		ns, err := netns.GetFromPath(path)
		if err != nil {
			result <- fmt.Errorf("open netns %s: %w", path, err)
			return
		}
		defer ns.Close()
		if err := netns.Set(ns); err != nil {
			result <- fmt.Errorf("enter netns %s: %w", path, err)
			return
		}
		result <- f()
	}()
	return <-result
}

// waitReachable waits until the pod that is left answers at each of its addresses.
func (p *pod) waitReachable() {
	p.m.s.Helper()
	for _, ip := range p.IPs {
		p.m.s.Eventually(fmt.Sprintf("%v at %v", p, ip), func() error {
			name, err := p.m.whoAnswers(ip)
			if err == nil && name != p.Name {
				err = errors.New(name + " answers")
			}
			return err
		})
	}
}
