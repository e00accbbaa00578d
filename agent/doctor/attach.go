package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/agent/probe"
	"github.com/dupip/dupip/bpf"
)

const attachAdvice = "where BPF is forbidden, allow it as the line says; else " +
	"use --attach auto, and a kernel with CONFIG_BPF_SYSCALL, CONFIG_NET_SCH_INGRESS and CONFIG_NET_CLS_BPF (modprobe sch_ingress cls_bpf)"

// attachCheck tests one mode from end to end. Only the mode that the agent uses has to work.
func attachCheck(mode bpf.Mode) func(context.Context, *facts) Check {
	return func(ctx context.Context, known *facts) Check {
		err := selfTest(ctx, mode)
		used := known.mode == mode || known.opts.Attach == mode
		switch {
		case err == nil && used && mode == bpf.XDP:
			return warn("use --attach auto, unless another program needs tcx and tc", "works, and --attach xdp uses it: TCP through a veth is several times slower, because the kernel has no segmentation offload there then")
		case err == nil && used:
			return ok("works, and --attach %s uses it", known.opts.Attach)
		case err == nil:
			return ok("works")
		case errors.Is(err, errBusy):
			return fail("run dupip doctor again", "%v", err)
		case used, known.mode == "": // then an agent could use any mode
			return fail(attachAdvice, "the test packet was not observed: %v", err)
		}
		return skip("does not work here, and is not needed: %v", err)
	}
}

const (
	// loopback is the index of lo in every netns (LOOPBACK_IFINDEX, include/net/flow.h).
	loopback = 1
	testWait = 3 * time.Second
)

// testAddress is the target of the test packet, in a block for documentation (RFC 5737).
var testAddress = netip.AddrFrom4([4]byte{192, 0, 2, 1})

var errBusy = errors.New("the test did not finish: the node is too busy")

// selfTest loads the program, attaches it to lo in a new netns, sends an ARP probe, and waits for its
// record.
func selfTest(ctx context.Context, mode bpf.Mode) error {
	return netns.DoInNew(func() error {
		if err := netlink.LinkSetUp(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: loopback}}); err != nil {
			return fmt.Errorf("setting lo up: %w", err)
		}
		observer, err := bpf.Load(bpf.Options{Mode: mode, RingBytes: 4096, MaxAddresses: 1024, MaxInterfaces: 8})
		if err != nil {
			return err
		}
		var reader sync.WaitGroup
		defer reader.Wait()
		defer observer.Close()
		if _, err := observer.Attach(loopback, bpf.AttachOptions{Generation: 1, CreateQdisc: true}); err != nil {
			return err
		}
		seen := make(chan error, 1)
		reader.Go(func() { seen <- readTest(observer) })
		return sendTest(ctx, seen)
	})
}

// readTest waits for the record of the test packet, or until the observer is closed.
func readTest(observer *bpf.Observer) error {
	var record bpf.Record
	for record.IP != testAddress || record.Ifindex != loopback {
		if err := observer.Read(&record); err != nil {
			return err
		}
	}
	return nil
}

// sendTest sends the probe until seen has a value.
func sendTest(ctx context.Context, seen <-chan error) error {
	sender, err := probe.OpenSocket()
	if err != nil {
		return err
	}
	defer sender.Close()
	timeout := time.After(testWait)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := sender.Send(probe.Target{Ifindex: loopback, IP: testAddress, Source: [6]byte{2, 'd', 'o', 'c', 't', 'r'}}); err != nil {
			return err
		}
		select {
		case err := <-seen:
			return err
		case <-ctx.Done():
			return errBusy
		case <-timeout:
			return fmt.Errorf("no record of it after %v", testWait)
		case <-tick.C:
		}
	}
}
