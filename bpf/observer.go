package bpf

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"
)

// Observer is a loaded program with its maps and attachments. Its methods are safe for concurrent use.
type Observer struct {
	mode       Mode
	collection *ebpf.Collection
	program    *ebpf.Program
	interfaces *ebpf.Map
	addresses  *ebpf.Map
	captures   *ebpf.Map

	records, frames *ring

	mu       sync.Mutex
	attached map[int]*Attachment
	closed   bool
	more     map[string]more // by the program's name
	early    *Watch          // nil if it is not open

	// tableMu is locked after mu. It is not held while the kernel attaches or detaches, so that Forget
	// does not wait for that.
	tableMu  sync.Mutex
	epoch    uint64
	captured int // how many addresses are
	unloaded bool
}

// ring is a ring buffer that one goroutine at a time reads.
type ring struct {
	*ringbuf.Reader
	mu  sync.Mutex // held while read waits
	raw ringbuf.Record
}

func openRing(m *ebpf.Map) (*ring, error) {
	reader, err := ringbuf.NewReader(m)
	if err != nil {
		return nil, fmt.Errorf("open the ring of %s: %w", m, err)
	}
	return &ring{Reader: reader}, nil
}

// read waits for the next sample, which decode must not keep.
func (r *ring) read(decode func(sample []byte) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.ReadInto(&r.raw); err != nil {
		return fmt.Errorf("read a ring buffer: %w", err)
	}
	return decode(r.raw.RawSample)
}

// Load loads the program into the kernel. The error is one line that says what is missing: a capability
// ([os.ErrPermission]), a newer kernel ([ebpf.ErrNotSupported]), or a mode that this kernel has.
func Load(opts Options) (*Observer, error) {
	mode, err := ResolveMode(opts.Mode)
	if err != nil {
		return nil, err
	}

	name := "dupip_observer"
	if mode == XDP {
		name = "dupip_xdp"
	}
	spec, err := specOf(name)
	if err != nil {
		return nil, err
	}
	withoutInside(spec)
	if err := opts.apply(spec); err != nil {
		return nil, err
	}
	collection, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, explainLoad(err)
	}
	records, err := openRing(collection.Maps["records"])
	if err != nil {
		collection.Close()
		return nil, err
	}
	frames, err := openRing(collection.Maps["frames"])
	if err != nil {
		_ = records.Close()
		collection.Close()
		return nil, err
	}
	return &Observer{
		mode:       mode,
		collection: collection,
		program:    collection.Programs[name],
		interfaces: collection.Maps["interfaces"],
		addresses:  collection.Maps["addresses"],
		captures:   collection.Maps["captures"],
		records:    records,
		frames:     frames,
		attached:   make(map[int]*Attachment),
		more:       make(map[string]more),
	}, nil
}

// Mode returns the attach mode: TCX, TC or XDP, never Auto.
func (o *Observer) Mode() Mode { return o.mode }

// Read waits for the next record and stores it in rec. It allocates nothing. After Close the error
// matches [os.ErrClosed]. One of several concurrent calls gets a record.
func (o *Observer) Read(rec *Record) error {
	return o.records.read(rec.decode)
}

// Counters count packets that were not recorded at one interface since it was attached.
type Counters struct {
	// RefusedData, RefusedAnnounced and RefusedAnswers found no token in their bucket. Tentative and
	// gratuitous packets count as announced, refreshes by the kind of their packet. Of the data, up to 63
	// packets of each CPU are counted only with the next ones, or never if an interface is attached or detached before.
	RefusedData, RefusedAnnounced, RefusedAnswers uint64
	// RingFull packets found no room in the ring, because the reader is slow.
	RingFull uint64
}

// Counters reads the counters of an interface. The error matches [ebpf.ErrKeyNotExist] when nothing is
// attached to it, and [os.ErrClosed] after Close.
func (o *Observer) Counters(ifindex int) (Counters, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return Counters{}, fmt.Errorf("read the counters of interface %d: %w", ifindex, os.ErrClosed)
	}
	var value observerInterface
	if err := o.interfaces.Lookup(uint32(ifindex), &value); err != nil {
		return Counters{}, fmt.Errorf("read the counters of interface %d: %w", ifindex, err)
	}
	return Counters{
		RefusedData:      value.RefusedData,
		RefusedAnnounced: value.RefusedAnnounced,
		RefusedAnswers:   value.RefusedAnswers,
		RingFull:         value.RingFull,
	}, nil
}

// Close detaches from all interfaces, makes Read and ReadFrame return and unloads the program. Another call does
// nothing.
func (o *Observer) Close() error {
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		return nil
	}
	o.closed = true
	var errs []error
	for _, attachment := range o.attached {
		errs = append(errs, attachment.close())
	}
	errs = append(errs, o.closeEarly())
	for _, m := range o.more {
		if m.Collection != nil {
			m.Close()
		}
	}
	o.mu.Unlock()

	errs = append(errs, o.records.Close(), o.frames.Close())
	o.tableMu.Lock()
	defer o.tableMu.Unlock()
	o.unloaded = true
	o.collection.Close()
	return errors.Join(errs...)
}

// nextEpoch invalidates the caches in the kernel.
func (o *Observer) nextEpoch() error {
	o.tableMu.Lock()
	defer o.tableMu.Unlock()
	return o.renewEpoch()
}

// renewEpoch does the work of nextEpoch. The caller holds tableMu.
func (o *Observer) renewEpoch() error {
	o.epoch = oddNumber()
	if err := o.collection.Variables["epoch"].Set(o.epoch); err != nil {
		return fmt.Errorf("renew the epoch of the caches: %w", err)
	}
	return nil
}

// more is a program that is loaded when it is needed first, beside the first one and with its maps: few nodes have such
// interfaces, and most of them need the types of the running kernel, which takes longer.
type more struct {
	*ebpf.Collection
	err error // why it cannot be loaded
}

// moreNeeds has what the kernel needs to have for such a program.
var moreNeeds = map[string]string{
	"dupip_inside": ", which needs CONFIG_DEBUG_INFO_BTF and Linux 6.6",
	"dupip_netkit": ", which needs CONFIG_DEBUG_INFO_BTF and Linux 6.7",
}

// loadMore loads a program, unless it is loaded. Where the kernel lacks what it needs, that is not tried again. The caller holds mu.
func (o *Observer) loadMore(name string) (*ebpf.Collection, error) {
	if done, ok := o.more[name]; ok {
		return done.Collection, done.err
	}
	spec, err := specOf(name)
	if err != nil {
		return nil, err
	}
	for name, shared := range o.collection.Maps {
		spec.Maps[name].MaxEntries = shared.MaxEntries()
	}
	spec.Maps["inside_devices"].MaxEntries = o.interfaces.MaxEntries()
	if name != "dupip_inside" {
		withoutInside(spec)
	}
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: o.collection.Maps})
	if err != nil {
		err = fmt.Errorf("load the bpf program %s%s: %w", name, moreNeeds[name], err)
	}
	if err == nil || errors.Is(err, ebpf.ErrNotSupported) {
		o.more[name] = more{collection, err}
	}
	return collection, err
}

// specOf is what is loaded for one of the programs.
func specOf(name string) (*ebpf.CollectionSpec, error) {
	spec, err := loadObserver()
	if err != nil {
		return nil, fmt.Errorf("read the bpf objects: %w", err)
	}
	maps.DeleteFunc(spec.Programs, func(other string, _ *ebpf.ProgramSpec) bool { return other != name })
	for _, program := range spec.Programs {
		// The processors that dupip is built for read at any address. User-mode Linux, which runs on them, does not know that.
		program.Flags |= unix.BPF_F_ANY_ALIGNMENT
	}
	return spec, nil
}

// withoutInside leaves out the maps that only the program for devices inside another netns has.
func withoutInside(spec *ebpf.CollectionSpec) {
	delete(spec.Maps, "inside_devices")
	delete(spec.Maps, "inside_cache")
}
