package lab

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

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
	var socket *packetSocket
	if err := n.Exec(func() (err error) {
		socket, err = openPacket(device)
		return err
	}); err != nil {
		return 0, fmt.Errorf("flood from netns %s: %w", n.Name, err)
	}
	defer socket.close()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); ; {
		for due := int(time.Since(began).Seconds() * float64(perSecond)); sent < due; sent++ {
			// A full queue is the sender's own bottleneck.
			if err := socket.send(next(sent)); err != nil && !errors.Is(err, unix.ENOBUFS) {
				return sent, fmt.Errorf("flood from netns %s: %w", n.Name, err)
			}
		}
		select {
		case <-ctx.Done():
			return sent, nil
		case <-tick.C:
		}
	}
}
