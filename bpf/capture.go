package bpf

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
)

// FrameKind is the kind of a captured frame. Each has a budget of its own.
type FrameKind uint8

// The kinds, as enum frame_kind of include/table.h has them.
const (
	AnswerToUs   FrameKind = iota // an answer to this node's probe
	OtherAnswer                   // of ARP or NDP
	Announcement                  // what else ARP or NDP says
	Ordinary                      // any other packet
	FrameKinds                    // how many there are
)

const (
	// FramesOfKind is how many frames of one kind are captured of an address behind one interface.
	FramesOfKind = 16
	// MaxFrames are all of them.
	MaxFrames = int(FrameKinds) * FramesOfKind
)

// captureKey is the key of an address among those that are captured: the program has no generation at hand.
func (a Address) captureKey() address {
	a.Generation = 0
	return a.key()
}

// Capture captures the next packets that are about these addresses, or from them, until [Observer.Release]. One that is
// captured already stays as it is. While any is, packets of the first address of each interface cost no more for that, those of
// others a look-up. The error matches [os.ErrClosed] after Close.
func (o *Observer) Capture(addresses []Address) error {
	wanted := observerCapture{Left: [FrameKinds]uint32{FramesOfKind, FramesOfKind, FramesOfKind, FramesOfKind}}
	return o.setCaptured(addresses, 1, ebpf.ErrKeyExist, func(key address) error {
		return o.captures.Update(key, &wanted, ebpf.UpdateNoExist)
	})
}

// Release ends what Capture began. It is no error if an address is not captured.
func (o *Observer) Release(addresses []Address) error {
	return o.setCaptured(addresses, -1, ebpf.ErrKeyNotExist, func(key address) error { return o.captures.Delete(key) })
}

// setCaptured changes the addresses that are captured, and their number by step for each. It ignores one error.
func (o *Observer) setCaptured(addresses []Address, step int, ignored error, set func(address) error) error {
	o.tableMu.Lock()
	defer o.tableMu.Unlock()
	if o.unloaded {
		return fmt.Errorf("capture packets: %w", os.ErrClosed)
	}
	var errs []error
	for _, a := range addresses {
		switch err := set(a.captureKey()); {
		case err == nil:
			o.captured += step
		case !errors.Is(err, ignored):
			errs = append(errs, fmt.Errorf("capture packets of %s: %w", a.IP, err))
		}
	}
	if err := o.collection.Variables["capturing"].Set(uint32(o.captured)); err != nil {
		errs = append(errs, fmt.Errorf("set whether packets are captured: %w", err))
	}
	if step > 0 {
		// Last: a program that finds the new epoch finds the address captured, and fills no slot with it.
		errs = append(errs, o.renewEpoch())
	}
	return errors.Join(errs...)
}

// LostFrames counts the frames of addresses that are captured for which the ring had no room. The others are captured later.
func (o *Observer) LostFrames(addresses []Address) (lost int) {
	o.tableMu.Lock()
	defer o.tableMu.Unlock()
	if o.unloaded {
		return 0
	}
	for _, a := range addresses {
		var value observerCapture
		if o.captures.Lookup(a.captureKey(), &value) == nil {
			lost += int(value.Lost)
		}
	}
	return lost
}

// ReadFrame waits for the next captured frame. After Close the error matches [os.ErrClosed]. One of several concurrent
// calls gets a frame.
func (o *Observer) ReadFrame(f *Frame) error {
	return o.frames.read(f.decode)
}
