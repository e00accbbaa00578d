package lab

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
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

// InVLAN puts the pod's kernel into a VLAN: from now on all that leaves its first
// interface is tagged, and what comes in without the tag is dropped. The tag travels beside
// the packet, as that of a VLAN device does, and not in it, as that of a [Guest] does. It
// is done by two programs, because some kernels have no VLAN devices.
func (p *Pod) InVLAN(vlan uint16) error {
	push := asm.Instructions{
		// R1 is the packet. The protocol is in network order.
		asm.Mov.Imm(asm.R2, int32(htons(etherVLAN))),
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
		if err := p.attachTCX(index, hook.at, hook.code); err != nil {
			return fmt.Errorf("put netns %s into VLAN %d: %w", p.Name, vlan, err)
		}
	}
	return nil
}

// attachTCX runs a program on a device of the pod until the lab ends.
func (p *Pod) attachTCX(index int, at ebpf.AttachType, code asm.Instructions) error {
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
	p.lab.OnClose(func() error {
		// The device may be gone.
		if err := l.Close(); err != nil && !errors.Is(err, unix.ENODEV) {
			return err
		}
		return nil
	})
	return nil
}
