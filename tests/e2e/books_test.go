package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/dupip/dupip/tests/cri"
	"github.com/dupip/dupip/tests/lab"
)

// booked is a node with containerd, the plugins ptp and host-local, and an agent.
type booked struct {
	*lab.T
	*cri.Runtime
	agent *lab.Agent
}

func newBooked(t *testing.T, subnet string, flags ...string) *booked {
	return newBookedBy(t, hostLocal(subnet), flags...)
}

// hostLocal are the plugins ptp and host-local.
func hostLocal(subnet string) cri.Options {
	return cri.Options{Plugins: []map[string]any{{"type": "ptp", "ipam": cri.HostLocal(subnet)}}}
}

func newBookedBy(t *testing.T, o cri.Options, flags ...string) *booked {
	l := lab.NewT(t)
	r, err := cri.New(l.Lab, l.Node(""), o)
	l.Do(err, r.Start(t.Context()))
	return &booked{l, r, l.Agent(r.Node, append(flags, "--cri-socket", r.Socket, "--cni-conf-dir", "auto")...)}
}

// run makes a pod in the namespace shop, and waits until the agent knows its name.
func (b *booked) run(name string) *cri.Pod {
	b.Helper()
	return b.runIn("shop", name)
}

func (b *booked) runIn(namespace, name string) *cri.Pod {
	b.Helper()
	p, err := b.RunPod(b.Context(), cri.PodOptions{Namespace: namespace, Name: name, UID: lab.UUIDOf(name)})
	b.Do(err)
	_, err = b.agent.Client.WaitBinding(within(b.T, patience), p.IPs[0], func(h lab.Binding) bool { return h.Pod != nil && h.Pod.Name == name })
	b.Do(err)
	return p
}

// says waits until a command prints these texts, whatever the lines.
func (b *booked) says(command string, texts ...string) {
	b.Helper()
	b.Eventually("what "+command+" says", func() error {
		out, err := b.agent.CLI(b.Context(), strings.Fields(command)...)
		flat := strings.Join(strings.Fields(out), " ")
		for _, text := range texts {
			if !strings.Contains(flat, text) {
				return fmt.Errorf("without %q: %s, %w", text, out, err)
			}
		}
		return nil
	})
}

// A pod adds the address that IPAM gives out next. The pod that is given it is the newer one, and innocent.
func TestTakenByHand(t *testing.T) {
	t.Parallel()
	b := newBooked(t, "10.98.0.0/24")
	thief := b.run("thief")
	next := thief.IPs[0].Next()
	b.Do(addAddress(thief, next))
	if newcomer := b.run("newcomer"); newcomer.IPs[0] != next {
		t.Fatalf("IPAM gave out %v instead of %v", newcomer.IPs[0], next)
	}
	b.says("conflicts",
		"No network plugin gave shop/thief the address (CNI gave it "+thief.IPs[0].String()+"), but one gave it to shop/newcomer. shop/newcomer stays: it has the reservation.",
		"Remove shop/thief, which no network plugin gave the address (this cuts the pod shop/thief, which ends", `{"uid":"`+thief.UID+`"}`, "/api/v1/namespaces/shop/pods/thief ")
	c := judgedOn(b.T, b.agent, next)
	if v, j := c.verdicts(), c.Judgement; v != "thief remove not-given, newcomer keep reserved" || j.Cause != "by-hand" || j.Confidence != "certain" || !j.Orders() {
		t.Errorf("%s: %+v", v, j)
	}
	b.says("explain "+next.String(), "reserved for shop/newcomer since", "Why: No network plugin gave shop/thief the address", "It was probably set by hand in shop/thief, or by a program there")
	b.says("status", "Books host-local, network", "2 addresses reserved of 10.98.0.1-10.98.0.254")
	b.Do(b.StopPod(t.Context(), thief))
	b.says("conflicts", "No conflict")
}

// The store is wiped while a pod runs: the address is not reserved any more, and then it is given out again. Why that was so is known
// when it is over, too, and to the next agent.
func TestWipedStore(t *testing.T) {
	t.Parallel()
	b := newBooked(t, "10.97.0.0/24")
	older := b.run("older")
	explain := "explain " + older.IPs[0].String()
	b.says(explain, "shop/older was given the address by a network plugin", "reserved for shop/older since")
	b.Do(b.WipeStore())
	newcomer := b.run("newcomer")
	if newcomer.IPs[0] != older.IPs[0] {
		t.Fatalf("IPAM gave out %v instead of %v", newcomer.IPs[0], older.IPs[0])
	}
	b.says(explain, "reserved for shop/newcomer since", "Why: shop/older was given the address, but host-local (network ", "has reserved it for shop/newcomer.",
		"shop/newcomer stays: it has the reservation.", "Remove shop/older, which has lost its reservation", `{"uid":"`+older.UID+`"}`)
	saved := func(what, text string) {
		b.Eventually(what+" is saved", func() error { return savedBy(b.agent, text) })
	}
	saved("the cause, while the conflict is open,", `"books":[{`)
	b.Do(b.agent.Kill())
	b.Do(b.WipeStore()) // it says something else from now on
	b.agent = b.Successor(b.agent)
	b.says(explain, "same-node: confirmed") // again: until then its end would be awaited for longer
	b.Do(b.StopPod(t.Context(), older))
	past := []string{"resolved", "was open for", "Who had it before", "shop/older, interface veth", "Why: shop/older had been given the address, but host-local (network ", "had reserved it for shop/newcomer.", "shop/newcomer was right: it had the reservation."}
	b.says(explain, past...)
	saved("the end", `"history":[{`)
	b.Do(b.agent.Kill())
	b.agent = b.Successor(b.agent)
	b.says(explain, past...)
}

// savedBy returns an error unless an agent's state has a text.
func savedBy(a *lab.Agent, text string) error {
	data, err := os.ReadFile(filepath.Join(a.StateDir(), "state.json"))
	if err == nil && !bytes.Contains(data, []byte(text)) {
		err = errors.New(string(data))
	}
	return err
}

// addAddress adds an address to the pod's eth0, as a process in it could.
func addAddress(p *cri.Pod, ip netip.Addr) error {
	return withEth0(p, func(handle *netlink.Handle, eth0 netlink.Link) error {
		return handle.AddrAdd(eth0, &netlink.Addr{IPNet: netlink.NewIPNet(ip.AsSlice())})
	})
}

// withEth0 calls f with the pod's eth0, and a handle in the pod's netns.
func withEth0(p *cri.Pod, f func(*netlink.Handle, netlink.Link) error) error {
	file, err := netns.GetFromPath(p.Netns)
	if err != nil {
		return err
	}
	defer file.Close()
	handle, err := netlink.NewHandleAt(file)
	if err != nil {
		return err
	}
	defer handle.Close()
	eth0, err := handle.LinkByName("eth0")
	if err != nil {
		return err
	}
	return f(handle, eth0)
}
