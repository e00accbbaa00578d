package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/agent/solicit"
	"github.com/dupip/dupip/bpf"
)

// attachCheck tries one mode from end to end. That the mode works which the agent takes
// is needed; of the others it is told.
func attachCheck(mode bpf.Mode) func(context.Context, *facts) finding {
	return func(ctx context.Context, known *facts) finding {
		if known.uid != 0 || known.userns {
			return skip("needs root")
		}
		var missing []string
		for _, c := range needed {
			if !known.has(c.number) && c.number != unix.CAP_NET_BROADCAST {
				missing = append(missing, c.name)
			}
		}
		if len(missing) > 0 {
			return skip("cannot be tried without %s", listed(missing))
		}
		err := selfTest(ctx, mode)
		taken := known.mode == mode || known.opts.Attach == mode
		switch {
		case err == nil && taken:
			return ok("works, and is what --attach %s takes", known.opts.Attach)
		case err == nil:
			return ok("works")
		case taken:
			return fail(attachAdvice(mode, err), "a test packet was not seen: %v", err)
		case known.mode != "":
			return skip("does not work here, and is not needed: %s", cause(err))
		}
		// Not even how to attach could be found out: every mode is as good as taken.
		return fail(attachAdvice(mode, err), "%v", err)
	}
}

// cause shortens the error of a mode that nobody needs.
func cause(err error) string {
	if errors.Is(err, ebpf.ErrNotSupported) {
		return "this kernel does not have it"
	}
	return err.Error()
}

func attachAdvice(mode bpf.Mode, err error) string {
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, fs.ErrPermission):
		return "something forbids it though the capabilities are there: see \"security\", and allow the bpf system call in the seccomp, AppArmor or SELinux profile"
	case errors.Is(err, errBusy):
		return "run dupip doctor again"
	case errors.Is(err, errVeth):
		return "the kernel needs CONFIG_VETH (modprobe veth)"
	case mode == bpf.TC:
		return "the kernel needs CONFIG_NET_SCH_INGRESS and CONFIG_NET_CLS_BPF (modprobe sch_ingress cls_bpf)"
	case mode == bpf.TCX && errors.Is(err, ebpf.ErrNotSupported):
		return "tcx needs Linux 6.6 with CONFIG_NET_XGRESS: take --attach auto or tc"
	}
	return "take --attach auto; if that is what fails, the kernel needs CONFIG_BPF_SYSCALL and CONFIG_NET_CLS_BPF"
}

// testAddress is the one that is asked for, of the block for documentation (RFC 5737).
var testAddress = netip.AddrFrom4([4]byte{192, 0, 2, 1})

// testWait is how long a packet may take from one end of a veth to the reader. How long it
// takes to make the veth and to load the program says nothing, but that the node is busy.
const testWait = 3 * time.Second

var (
	errVeth = errors.New("making a veth pair")
	errBusy = errors.New("not tried to the end: the node is too busy")
)

// selfTest does in a netns of its own what an agent does: it loads the program, attaches
// it to one end of a veth pair, sends one of the agent's questions in at the other end,
// and waits for the record of it.
func selfTest(ctx context.Context, mode bpf.Mode) error {
	return netns.DoInNew(func() error {
		host, pod, err := vethPair()
		if err != nil {
			return err
		}
		observer, err := bpf.Load(bpf.Options{Mode: mode, RingBytes: 4096, MaxAddresses: 1024, MaxInterfaces: 8})
		if err != nil {
			return err
		}
		var reader sync.WaitGroup
		defer reader.Wait()
		defer observer.Close()
		if _, err := observer.Attach(host, bpf.AttachOptions{Generation: 1, CreateQdisc: true}); err != nil {
			return err
		}
		seen := make(chan error, 1)
		reader.Go(func() { seen <- readTest(observer, host) })
		return sendTest(ctx, pod, seen)
	})
}

// vethPair makes a pair with both ends up in the calling thread's netns.
func vethPair() (host, pod int, err error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "doctor0"
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "doctor1"}); err != nil {
		return 0, 0, fmt.Errorf("%w: %w", errVeth, err)
	}
	var indexes [2]int
	for n, name := range []string{"doctor0", "doctor1"} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return 0, 0, fmt.Errorf("%w: %w", errVeth, err)
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return 0, 0, fmt.Errorf("%w: setting %s up: %w", errVeth, name, err)
		}
		indexes[n] = link.Attrs().Index
	}
	return indexes[0], indexes[1], nil
}

// readTest returns when the test packet was recorded, or when the observer is closed.
func readTest(observer *bpf.Observer, ifindex int) error {
	for {
		var record bpf.Record
		if err := observer.Read(&record); err != nil {
			return err
		}
		if record.IP == testAddress && record.Ifindex == uint32(ifindex) {
			return nil
		}
	}
}

// sendTest sends the question until it was seen: an interface takes a moment to be up.
func sendTest(ctx context.Context, ifindex int, seen <-chan error) error {
	mac := net.HardwareAddr{2, 'd', 'o', 'c', 't', 'r'}
	sender, err := solicit.Open(mac)
	if err != nil {
		return err
	}
	defer sender.Close()
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, testWait)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		sendErr := sender.Send(solicit.Target{Ifindex: ifindex, IP: testAddress})
		select {
		case err := <-seen:
			return err
		case <-ctx.Done():
			switch waited := time.Since(began); {
			case sendErr != nil:
				return sendErr
			case waited < testWait:
				return errBusy
			default:
				return fmt.Errorf("no record of it after %v", waited.Round(100*time.Millisecond))
			}
		case <-tick.C:
		}
	}
}
