package bpf

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
)

// How many frames of an address are captured behind one interface.
const (
	// AnswerFrames are those of kind [Answer].
	AnswerFrames = 32
	// OtherFrames are those of other ARP and NDP packets, and again so many those of all other packets.
	OtherFrames = 16
	// MaxFrames are all of them.
	MaxFrames = AnswerFrames + 2*OtherFrames
)

// captureKey is the key of an address among those that are captured: the program has no generation at hand.
func (a Address) captureKey() address {
	a.Generation = 0
	return a.key()
}

// Capture captures the next packets that are about these addresses, or from them, until [Observer.Release]. One that is
// captured already stays as it is. Other addresses cost no more for that, but for a miss of each CPU's cache of each
// interface. The error matches [os.ErrClosed] after Close.
func (o *Observer) Capture(addresses []Address) error {
	return o.setCaptured(addresses, 1, ebpf.ErrKeyExist, func(key address) error {
		return o.captures.Update(key, &observerCapture{Answers: AnswerFrames, Announced: OtherFrames, Data: OtherFrames}, ebpf.UpdateNoExist)
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
	o.framesMu.Lock()
	defer o.framesMu.Unlock()
	if err := o.frames.ReadInto(&o.rawFrame); err != nil {
		return fmt.Errorf("read a frame: %w", err)
	}
	return f.decode(o.rawFrame.RawSample)
}
