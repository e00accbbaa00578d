package scenarios

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/lab"
)

// Verdicts of programs of the kind tc.
const (
	tcPass = 0
	tcDrop = 2
)

// vlanPresent and vlanTCI are where a program finds the tag in struct __sk_buff.
const (
	vlanPresent = 20
	vlanTCI     = 24
)

// tagVLAN puts the pod's kernel into a VLAN: from now on all that leaves its first
// interface is tagged, and what comes in without the tag is dropped. The tag travels beside
// the packet, as that of a VLAN device does, and not in it, as that of a [lab.Guest] does. It
// is done by two programs, because some kernels have no VLAN devices.
func tagVLAN(p *lab.Pod, vlan uint16) error {
	push := asm.Instructions{
		// R1 is the packet. The protocol is in network order.
		asm.Mov.Imm(asm.R2, int32(binary.NativeEndian.Uint16([]byte{0x81, 0x00}))),
		asm.Mov.Imm(asm.R3, int32(vlan)),
		asm.FnSkbVlanPush.Call(),
		asm.Mov.Imm(asm.R0, tcPass),
		asm.Return(),
	}
	pop := asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, vlanPresent, asm.Word),
		asm.JEq.Imm(asm.R2, 0, "drop"),
		asm.LoadMem(asm.R2, asm.R1, vlanTCI, asm.Word),
		asm.And.Imm(asm.R2, 0xfff),
		asm.JNE.Imm(asm.R2, int32(vlan), "drop"),
		asm.FnSkbVlanPop.Call(),
		asm.Mov.Imm(asm.R0, tcPass),
		asm.Return(),
		asm.Mov.Imm(asm.R0, tcDrop).WithSymbol("drop"),
		asm.Return(),
	}
	index, err := p.Ifindex(p.Interface)
	if err != nil {
		return err
	}
	for _, hook := range []struct {
		code asm.Instructions
		at   ebpf.AttachType
	}{{push, ebpf.AttachTCXEgress}, {pop, ebpf.AttachTCXIngress}} {
		if err := attachTCX(p, index, hook.at, hook.code); err != nil {
			return fmt.Errorf("put netns %s into VLAN %d: %w", p.Name, vlan, err)
		}
	}
	return nil
}

// attachTCX runs a program on a device of the pod until the lab ends.
func attachTCX(p *lab.Pod, index int, at ebpf.AttachType, code asm.Instructions) error {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, Instructions: code, License: "GPL"})
	if err != nil {
		return err
	}
	defer program.Close()
	var l link.Link
	if err := p.Exec(func() (err error) {
		l, err = link.AttachTCX(link.TCXOptions{Interface: index, Program: program, Attach: at})
		return err
	}); err != nil {
		return err
	}
	p.Node.Lab().OnClose(func() error {
		// The device may be gone.
		if err := l.Close(); err != nil && !errors.Is(err, unix.ENODEV) {
			return err
		}
		return nil
	})
	return nil
}

// What a pod in a VLAN sends has the tag, and what has none does not reach it.
func TestTagVLAN(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	ip := n.IPv4(5)
	p := l.Pod(n, "pod", lab.PodOptions{Addrs: []netip.Addr{ip}})
	if err := n.Ping(ip); err != nil {
		t.Fatal(err)
	}
	l.Do(tagVLAN(p, 42))
	tap := func(vlan uint16) *lab.Tap {
		tap, err := n.Tap(p.HostInterface, func(packet lab.Packet) bool { return packet.VLAN == vlan })
		l.Do(err)
		return tap
	}
	tagged, untagged := tap(42), tap(0)
	l.Do(p.Announce(ip), p.SendUDP(ip, n.IPv4(1), 1))
	l.Eventually("tagged frames", func() error { return tapped(tagged, 2) })
	if err := n.Ping(ip); !errors.Is(err, lab.ErrNoAnswer) {
		t.Errorf("ping without a tag: %v, want %v", err, lab.ErrNoAnswer)
	}
	if untagged.Count() > 0 {
		t.Errorf("%d frames without a tag", untagged.Count())
	}
}
