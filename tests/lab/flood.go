package lab

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// SendFrames sends complete Ethernet frames out of a device of the netns, all through
// one packet socket.
func (n *Netns) SendFrames(device string, frames ...[]byte) error {
	return n.withSocket(device, func(s packetSocket) error {
		for _, f := range frames {
			if err := s.writeUntilSent(f); err != nil {
				return err
			}
		}
		return nil
	})
}

// queueTimeout is how long a frame may find no room: all namespaces of a CPU share one queue (net.core.netdev_max_backlog),
// which others may have filled.
const queueTimeout = 10 * time.Second

func (s packetSocket) writeUntilSent(frame []byte) error {
	for end := time.Now().Add(queueTimeout); ; time.Sleep(time.Millisecond) {
		if _, err := s.Write(frame); !errors.Is(err, unix.ENOBUFS) || time.Now().After(end) {
			return err
		}
	}
}

// SendRaw sends Ethernet frames out of the pod's first interface.
func (p *Pod) SendRaw(frames ...[]byte) error { return p.SendFrames(p.Interface, frames...) }

// Flood sends frames out of the pod's first interface, about perSecond of them each
// second, until ctx ends, and returns how many. next makes the n-th frame.
func (p *Pod) Flood(ctx context.Context, perSecond int, next func(n int) []byte) (sent int, err error) {
	return p.flood(ctx, p.Interface, perSecond, next)
}

// Flood sends frames from the node to the switch, as [Pod.Flood] does.
func (n *Node) Flood(ctx context.Context, perSecond int, next func(n int) []byte) (sent int, err error) {
	return n.flood(ctx, uplink, perSecond, next)
}

func (n *Netns) flood(ctx context.Context, device string, perSecond int, next func(n int) []byte) (sent int, err error) {
	err = n.withSocket(device, func(s packetSocket) error {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for began, made := time.Now(), 0; ; {
			due := int(time.Since(began).Seconds() * float64(perSecond))
			// What a busy machine held up is not made up for: one that is too slow would never be done.
			for made = max(made, due-1-perSecond/20); made < due; made++ {
				// A full queue is the sender's own bottleneck.
				if _, err := s.Write(next(sent)); err != nil && !errors.Is(err, unix.ENOBUFS) {
					return err
				}
				sent++
			}
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
		}
	})
	return sent, err
}

// withSocket runs f with a packet socket on a device of the netns.
func (n *Netns) withSocket(device string, f func(packetSocket) error) error {
	s, err := n.openPacket(device)
	if err == nil {
		defer s.Close()
		err = f(s)
	}
	if err != nil {
		return fmt.Errorf("send frames in netns %s: %w", n.Name, err)
	}
	return nil
}

// SendBack has the pod send back every frame that comes in at its first interface, but none twice in a second: two such pods on one bridge
// would send a broadcast to and fro. The listener holds the netns.
func (p *Pod) SendBack() (*Listener, error) {
	last := make(map[string]time.Time)
	return p.Listen(p.Interface, func(packet Packet) {
		now, frame := time.Now(), string(packet.Frame)
		if now.Sub(last[frame]) >= time.Second {
			last[frame] = now
			_ = p.SendRaw([]byte(frame)) // the interface may be gone
		}
	})
}
