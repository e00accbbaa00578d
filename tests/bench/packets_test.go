package bench

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/tests/lab"
)

// packetCase is one kind of traffic at one interface.
type packetCase struct {
	what  string
	frame []byte
	// turns makes each packet come from another address than the one before; nil is one
	// address.
	turns *rotation
	// records is how many records the observer writes, whatever the number of packets: it proves that
	// the case is what its name says. refused is instead of a number.
	records int64
	goal    string
	// captures makes the observer capture packets of another address, as during a conflict.
	captures bool
}

const (
	oneAddress    = "≤ +5 ns"
	two           = "≤ +9 ns"
	moreAddresses = "≤ +10 ns"
	coldAddresses = "≤ +10 ns, and what an array costs"
	floods        = "≤ +28 ns, and what an array costs"
	answers       = "≤ +60 ns"

	// refused: nearly all packets are refused, because there are no tokens for their sources.
	refused = -1
	// answered: answers are, of which each makes a record while there are tokens.
	answered = -2
)

var packetCases = []packetCase{
	{"parsed, no address in it", brokenFrame(), nil, 0, "", false},
	{"one IPv4 address", ipFrame("10.0.0.1", 0), nil, 1, oneAddress, false},
	{"one IPv6 address", ipFrame("2001:db8::1", 0), nil, 1, oneAddress, false},
	{"one IPv4 address, while another is captured", ipFrame("10.0.0.1", 0), nil, 1, oneAddress, true},
	{"one IPv4 address, tag in the packet", ipFrame("10.0.0.1", 7), nil, 1, "", false},
	{"two IPv4 addresses in turns", ipFrame("10.0.0.1", 0), rotateIPv4(2), 2, two, false},
	{"256 IPv4 addresses in turns", ipFrame("10.0.0.1", 0), rotateIPv4(256), 256, moreAddresses, false},
	{"256 IPv6 addresses in turns", ipFrame("2001:db8::1", 0), rotateIPv6(256), 256, moreAddresses, false},
	{"20,000 IPv4 addresses in turns", ipFrame("10.0.0.1", 0), rotateIPv4(20_000), 20_000, coldAddresses, false},
	{"100,000 IPv4 addresses in turns, refused", ipFrame("10.0.0.1", 0), rotateIPv4(100_000), refused, floods, false},
	{"an ARP reply", arpReply(), nil, answered, answers, false},
}

var (
	podMAC  = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	nodeMAC = net.HardwareAddr{2, 0, 0, 0, 0, 2}
)

// ipFrame is the frame of a small datagram.
func ipFrame(source string, vlan uint16) []byte {
	src, dst, etherType := netip.MustParseAddr(source), "10.9.9.9", uint16(unix.ETH_P_IP)
	if src.Is6() {
		dst, etherType = "2001:db8::ffff", unix.ETH_P_IPV6
	}
	packet := lab.UDP(netip.AddrPortFrom(src, 9), netip.AddrPortFrom(netip.MustParseAddr(dst), 9), make([]byte, 18))
	return lab.Ethernet(nodeMAC, podMAC, vlan, etherType, packet)
}

// brokenFrame has an IPv4 header that is shorter than one can be, which the observer finds
// out last of all in a header.
func brokenFrame() []byte {
	frame := ipFrame("10.0.0.1", 0)
	frame[14] = 0x44
	return frame
}

// arpReply is the answer of a pod to somebody.
func arpReply() []byte {
	packet := []byte{0, 1, 8, 0, 6, 4, 0, 2}
	packet = slices.Concat(packet, podMAC, []byte{10, 0, 0, 1}, nodeMAC, []byte{10, 0, 0, 9}, make([]byte, 18))
	return lab.Ethernet(nodeMAC, podMAC, 0, unix.ETH_P_ARP, packet)
}

// measurePackets runs the programs for tc, for devices inside another netns, and for XDP.
func measurePackets(b *bench) {
	n := b.Node("")
	b.measureCases(n, bpf.TC, nil, "tc and tcx")
	inside, err := n.AddSandbox("inside")
	b.Do(err)
	// BPF_PROG_TEST_RUN takes a packet to come from the loopback device of the thread's netns.
	b.Do(inside.Exec(func() error {
		b.measureCases(n, bpf.TCX, inside, "inside another netns, tcx egress")
		return nil
	}))
	b.measureCases(n, bpf.XDP, nil, "xdp")
}

// measureCases runs all cases of a mode in turns, and beside those with many addresses a program that does nothing but look into an array, of
// the size of the observer's, at a place by the address.
func (b *bench) measureCases(n *lab.Node, mode bpf.Mode, inside *lab.Netns, title string) {
	b.Helper()
	// CPU time is a thread's.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var trials []*trial
	for i, c := range packetCases {
		if inside != nil {
			c.goal = "" // the design sets none
		}
		trials = append(trials, b.newTrial(n, fmt.Sprintf("%s%d", mode, i), mode, inside, c))
	}
	kind := trials[0].program.Type()
	nothing := b.empty(kind)
	bare := b.array(kind)
	for _, sources := range []int32{20_000, 100_000} {
		turns := rotateIPv4(sources)
		trials = append(trials, &trial{
			packetCase: packetCase{what: fmt.Sprintf("an array, %d places in turns", sources), frame: ipFrame("10.0.0.1", 0), turns: turns},
			tested:     b.before(turns, bare), floor: b.before(turns, nothing),
		})
	}
	ordinary := ipFrame("10.0.0.1", 0)
	var base []float64
	for round := range b.rounds + 1 {
		least := b.cost(nothing, ordinary)
		for _, t := range trials {
			// The first round is for the tables to fill and the caches to get warm.
			if ns := t.run(b, least); round > 0 {
				t.ns = append(t.ns, ns)
			}
		}
		if round > 0 {
			base = append(base, least)
		}
	}
	b.title("ONE PACKET, %s (BPF_PROG_TEST_RUN, %d rounds in turns)", title, b.rounds)
	b.row("empty program", "", "%5.1f ns", median(base))
	for _, t := range trials {
		if t.observer != nil {
			b.Eventually(t.what, t.check)
		}
		b.row(t.what, t.goal, "%+5.1f ns", median(t.ns))
	}
}

// trial is a case under way, with an observer of its own: what one case has left in the
// tables would be another's luck.
type trial struct {
	packetCase
	observer *bpf.Observer
	program  *ebpf.Program
	ifindex  int
	// packets is how many packets were run.
	packets int64
	// tested is what is run, floor the same without the observer: both nil for one address.
	tested, floor *ebpf.Program
	written       atomic.Int64
	ns            []float64 // above an empty program
}

func (b *bench) newTrial(n *lab.Node, name string, mode bpf.Mode, inside *lab.Netns, c packetCase) *trial {
	b.Helper()
	constants := map[string]uint64{"refresh_ns": uint64(time.Hour), "data_token_ns": 1e3, "data_full_ns": 1e9}
	if c.records == refused {
		constants["data_token_ns"] = 1e9 // one a second
	}
	opts := bpf.Options{
		Mode: mode, Constants: constants, MaxInterfaces: 64,
		RingBytes: 1 << 22, // for the records of all addresses
	}
	ifindex := loopback
	var observer *bpf.Observer
	var program *ebpf.Program
	if inside == nil {
		observer, program = b.observe(n, name, opts)
	} else {
		ifindex = 1 << 31
		observer, program = b.observeInside(inside, ifindex, opts)
	}
	if c.captures {
		b.Do(observer.Capture([]bpf.Address{{Ifindex: uint32(ifindex), IP: netip.MustParseAddr("10.0.0.2")}}))
	}
	t := &trial{packetCase: c, observer: observer, program: program, ifindex: ifindex}
	go func() {
		for record := (bpf.Record{}); observer.Read(&record) == nil; {
			t.written.Add(1)
		}
	}()
	if c.turns != nil {
		t.tested, t.floor = b.before(c.turns, program), b.before(c.turns, b.empty(program.Type()))
	}
	if c.records > 1 {
		// All addresses, because each call begins with the first one.
		_, _, err := t.tested.Benchmark(c.frame, int(c.records)+1, nil)
		b.Do(err)
	}
	return t
}

// check reports a case that does not measure what its name says.
func (t *trial) check() error {
	written, records := t.written.Load(), t.records
	if records == answered {
		if counters, err := t.observer.Counters(t.ifindex); err != nil || int64(counters.RefusedAnswers)+written < t.packets {
			return fmt.Errorf("of %d answers %d were recorded and %d refused: %w", t.packets, written, counters.RefusedAnswers, err)
		}
		return nil
	}
	if records == refused {
		counters, err := t.observer.Counters(t.ifindex)
		if err != nil || int64(counters.RefusedData) < t.packets*9/10 {
			return fmt.Errorf("%d of %d packets were refused: %w", counters.RefusedData, t.packets, err)
		}
		return nil
	}
	if written != records {
		return fmt.Errorf("the observer wrote %d records, want %d", written, records)
	}
	return nil
}

// run returns the nanoseconds of a packet above an empty program. What it takes to count the address up is taken off, too: the same is run in
// front of an empty program.
func (t *trial) run(b *bench, least float64) float64 {
	t.packets += int64(b.repeat)
	if t.turns == nil {
		return b.cost(t.program, t.frame) - least
	}
	return b.cost(t.tested, t.frame) - b.cost(t.floor, t.frame)
}

// loopback is the ifindex that BPF_PROG_TEST_RUN takes a packet to come from, whatever the
// netns.
const loopback = 1

// observe attaches an observer of its own, with empty tables, in TC or XDP mode to the loopback
// device of a netns of its own, and returns its program, which is the one under tcx, too.
func (b *bench) observe(n *lab.Node, name string, opts bpf.Options) (*bpf.Observer, *ebpf.Program) {
	b.Helper()
	sandbox, err := n.AddSandbox(name)
	b.Do(err)
	observer, err := bpf.Load(opts)
	b.Do(err)
	b.Cleanup(func() { b.Do(observer.Close()) })
	b.Do(sandbox.Exec(func() error {
		_, err := observer.Attach(loopback, bpf.AttachOptions{Generation: 1, CreateQdisc: true})
		return err
	}))
	id, err := attachedProgram(sandbox.Netlink())
	b.Do(err)
	program, err := ebpf.NewProgramFromID(id)
	b.Do(err)
	b.Cleanup(func() { program.Close() })
	return observer, program
}

// observeInside attaches an observer of its own to the egress of the loopback device of a netns, the thread's own, and returns its
// program.
func (b *bench) observeInside(ns *lab.Netns, number int, opts bpf.Options) (*bpf.Observer, *ebpf.Program) {
	b.Helper()
	file, err := os.Open(ns.Path())
	b.Do(err)
	defer file.Close()
	observer, err := bpf.Load(opts)
	b.Do(err)
	b.Cleanup(func() { b.Do(observer.Close()) })
	_, err = observer.Attach(number, bpf.AttachOptions{Generation: 1, Inside: &bpf.Inside{Ifindex: loopback, Do: func(f func(cookie uint64) error) error {
		cookie, err := netns.CookieAt(ns.Path())
		b.Do(err)
		return netns.Do(file, func() error { return f(cookie) })
	}}})
	b.Do(err)
	// The last one to attach is the first to run.
	chain, err := link.QueryPrograms(link.QueryOptions{Target: loopback, Attach: ebpf.AttachTCXEgress})
	b.Do(err)
	program, err := ebpf.NewProgramFromID(chain.Programs[0].ID)
	b.Do(err)
	b.Cleanup(func() { program.Close() })
	return observer, program
}

// attachedProgram returns the program on the loopback device.
func attachedProgram(nl *netlink.Handle) (ebpf.ProgramID, error) {
	lo, err := nl.LinkByIndex(loopback)
	if err != nil {
		return 0, err
	}
	if xdp := lo.Attrs().Xdp; xdp != nil && xdp.Attached {
		return ebpf.ProgramID(xdp.ProgId), nil
	}
	filters, err := nl.FilterList(lo, netlink.HANDLE_MIN_INGRESS)
	for _, f := range filters {
		if f, ok := f.(*netlink.BpfFilter); ok {
			return ebpf.ProgramID(f.Id), nil
		}
	}
	return 0, errors.Join(errors.New("no program is attached"), err)
}

// empty makes a program that does nothing.
func (b *bench) empty(kind ebpf.ProgramType) *ebpf.Program {
	b.Helper()
	return b.newProgram(kind, asm.Mov.Imm(asm.R0, 2), asm.Return())
}

// rotation is how a source address is counted up: its last 24 bits are the lowest of an integer of this size at this offset. The observer
// loads the same integer: a wider load after a narrower store would make the CPU wait, and would count as the observer's time.
type rotation struct {
	size    asm.Size
	at      int16
	sources int32
}

func rotateIPv4(sources int32) *rotation { return &rotation{asm.Word, 26, sources} }
func rotateIPv6(sources int32) *rotation { return &rotation{asm.DWord, 30, sources} }

// load has R5 be this integer, or goes out. data is where R1, the context, has the beginning of the packet.
func (r *rotation) load(kind ebpf.ProgramType) asm.Instructions {
	data, end := int16(76), int16(80) // struct __sk_buff
	if kind == ebpf.XDP {
		data, end = 0, 4 // struct xdp_md
	}
	return asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, data, asm.Word),
		asm.LoadMem(asm.R3, asm.R1, end, asm.Word),
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, 40),
		asm.JGT.Reg(asm.R4, asm.R3, "out"),
		asm.LoadMem(asm.R5, asm.R2, r.at, r.size),
		asm.HostTo(asm.BE, asm.R5, r.size),
	}
}

// before makes a program that counts the source up and then calls the next program.
func (b *bench) before(r *rotation, next *ebpf.Program) *ebpf.Program {
	b.Helper()
	programs, err := ebpf.NewMap(&ebpf.MapSpec{
		Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 1,
		Contents: []ebpf.MapKV{{Key: uint32(0), Value: next}},
	})
	b.Do(err)
	b.Cleanup(func() { programs.Close() })
	return b.newProgram(next.Type(), slices.Concat(r.load(next.Type()), asm.Instructions{
		asm.Mov.Reg(asm.R4, asm.R5),
		asm.And.Imm(asm.R4, 1<<24-1),
		asm.Add.Imm(asm.R4, 1),
		asm.JLT.Imm(asm.R4, r.sources, "next"),
		asm.Mov.Imm(asm.R4, 0),
		asm.RSh.Imm(asm.R5, 24).WithSymbol("next"),
		asm.LSh.Imm(asm.R5, 24),
		asm.Or.Reg(asm.R5, asm.R4),
		asm.HostTo(asm.BE, asm.R5, r.size),
		asm.StoreMem(asm.R2, r.at, asm.R5, r.size),
		asm.LoadMapPtr(asm.R2, programs.FD()),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnTailCall.Call(),
		asm.Mov.Imm(asm.R0, 2).WithSymbol("out"),
		asm.Return(),
	})...)
}

// array makes a program that looks into an array of 1 MiB at a place by the source, where the places of neighbours are far apart.
func (b *bench) array(kind ebpf.ProgramType) *ebpf.Program {
	b.Helper()
	const places, golden = 1 << 15, -7046029254386353131 // 2^64 divided by the golden ratio
	array, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 32, MaxEntries: places})
	b.Do(err)
	b.Cleanup(func() { array.Close() })
	return b.newProgram(kind, slices.Concat(rotateIPv4(0).load(kind), asm.Instructions{
		asm.LoadImm(asm.R0, golden, asm.DWord),
		asm.Mul.Reg(asm.R5, asm.R0),
		asm.RSh.Imm(asm.R5, 64-15),
		asm.StoreMem(asm.R10, -4, asm.R5, asm.Word),
		asm.LoadMapPtr(asm.R1, array.FD()),
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.LoadMem(asm.R5, asm.R0, 0, asm.DWord),
		asm.JEq.Imm(asm.R5, 1, "out"),
		asm.Mov.Imm(asm.R0, 2).WithSymbol("out"),
		asm.Return(),
	})...)
}

func (b *bench) newProgram(kind ebpf.ProgramType, instructions ...asm.Instruction) *ebpf.Program {
	b.Helper()
	spec := &ebpf.ProgramSpec{Type: kind, License: "Dual BSD/GPL", Instructions: instructions}
	if kind == ebpf.XDP {
		spec.AttachType = ebpf.AttachXDP // a tail call needs the same type in both programs
	}
	program, err := ebpf.NewProgram(spec)
	b.Do(err)
	b.Cleanup(func() { program.Close() })
	return program
}

// cost runs a program on a packet and returns the nanoseconds of CPU time that one run took. The
// caller's goroutine is locked to its thread. The kernel's own count has whole nanoseconds, too
// coarse for an empty program of five.
func (b *bench) cost(program *ebpf.Program, packet []byte) float64 {
	b.Helper()
	began := b.threadTime()
	// A signal makes the kernel start all over.
	_, _, err := program.Benchmark(packet, b.repeat, func() { began = b.threadTime() })
	b.Do(err)
	return float64(b.threadTime()-began) / float64(b.repeat)
}
