package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Watch is a packet socket on an interface, whose filter records what is delivered to it and passes nothing on.
type Watch struct{ fd int }

// Watch records what is delivered to an interface ([Delivered]), until the watch is closed. The interface must be attached. The
// program is loaded with the first watch. It costs each packet to the interface a copy of its description, so it is for few interfaces and
// some time. The error matches [os.ErrClosed] after Close, and [unix.ENODEV] if the interface is gone.
func (o *Observer) Watch(ifindex int) (*Watch, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil, fmt.Errorf("watch interface %d: %w", ifindex, os.ErrClosed)
	}
	more, err := o.loadMore("dupip_delivered")
	if err != nil {
		return nil, err
	}
	return openFilter(more.Programs["dupip_delivered"], ifindex, false)
}

// openFilter opens a packet socket on an interface, or on all devices with 0, and runs the program as its filter; on received packets only,
// if asked.
func openFilter(program *ebpf.Program, ifindex int, received bool) (*Watch, error) {
	// With protocol 0 the socket receives nothing, until it has its filter.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open a packet socket: %w", err)
	}
	w := &Watch{fd}
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ATTACH_BPF, program.FD())
	if err == nil && received {
		// Else the kernel would clone each packet that is sent.
		err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
	}
	if err == nil {
		all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: ifindex})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("watch interface %d by a packet socket: %w", ifindex, err), w.Close())
	}
	return w, nil
}

// Close ends the watch. It may take some ten milliseconds.
func (w *Watch) Close() error { return unix.Close(w.fd) }
