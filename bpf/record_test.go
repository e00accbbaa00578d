package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
)

// encode is the reverse of decode.
func (r Record) encode() []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(r.Time))
	ip := r.IP.As16()
	b = append(b, ip[:]...)
	b = append(b, r.MAC[:]...)
	b = append(b, byte(r.Kind), 0)
	b = binary.LittleEndian.AppendUint32(b, r.Ifindex)
	b = binary.LittleEndian.AppendUint32(b, r.Generation)
	b = binary.LittleEndian.AppendUint16(b, r.VLAN.Outer)
	b = binary.LittleEndian.AppendUint16(b, r.VLAN.Inner)
	b = append(b, 0, 0, 0, 0)
	b = append(b, r.To[:]...)
	return append(b, 0, 0)
}

func sampleRecord(ip string) Record {
	return Record{
		Address: Address{Ifindex: 1 << 20, Generation: 1 << 31, IP: addr(ip), VLAN: VLAN{4094, 7}},
		Time:    3 * time.Hour, Kind: Answer, MAC: podMAC, To: us,
	}
}

func TestDecode(t *testing.T) {
	for _, ip := range []string{"10.0.0.1", "2001:db8::1", "a00:1::"} {
		want := sampleRecord(ip)
		var got Record
		if err := got.decode(want.encode()); err != nil {
			t.Fatal(err)
		}
		if diff := diff(want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", ip, diff)
		}
	}
	var record Record
	short := sampleRecord("10.0.0.1").encode()[:recordSize-1]
	if err := record.decode(short); !errors.Is(err, errBadRecord) {
		t.Errorf("a short record gave %v", err)
	}
	for _, kind := range []byte{0, byte(Delivered) + 1} {
		b := sampleRecord("10.0.0.1").encode()
		b[30] = kind
		if err := record.decode(b); !errors.Is(err, errBadRecord) {
			t.Errorf("kind %d gave %v", kind, err)
		}
	}
}

// FuzzDecode: bytes are refused, or they are exactly those of the record they give.
func FuzzDecode(f *testing.F) {
	f.Add(sampleRecord("10.0.0.1").encode())
	f.Add(sampleRecord("2001:db8::1").encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var record Record
		if err := record.decode(b); err != nil {
			if !errors.Is(err, errBadRecord) {
				t.Fatalf("refused with %v", err)
			}
			return
		}
		want := bytes.Clone(b[:recordSize])
		want[31] = 0
		clear(want[44:48])
		clear(want[54:])
		if got := record.encode(); !bytes.Equal(got, want) {
			t.Fatalf("%+v is\n%x, decoded from\n%x", record, got, want)
		}
	})
}

func TestReadTime(t *testing.T) {
	o := load(t, Options{Mode: TC})
	enter(t, o, loopback, 1)
	before := monotonic(t)
	run(t, o, loopback, ipv4Frame("10.0.0.1"))
	after := monotonic(t)
	got := records(t, o)
	if len(got) != 1 || got[0].Time < before || got[0].Time > after {
		t.Errorf("recorded %+v, want one between %v and %v", got, before, after)
	}
}

func TestReadAllocatesNothing(t *testing.T) {
	const runs = 100
	o := load(t, Options{Mode: TC, Constants: limits{AnswerRate: Rate{200, 1000}}.constants()})
	enter(t, o, loopback, 1)
	for range runs + 2 {
		run(t, o, loopback, frame(podMAC, typeARP, arp(2, podMAC, "10.0.0.1", "10.0.0.9")))
	}
	var record Record
	if err := o.Read(&record); err != nil { // makes the buffer
		t.Fatal(err)
	}
	if allocs := testing.AllocsPerRun(runs, func() {
		if err := o.Read(&record); err != nil {
			t.Fatal(err)
		}
	}); allocs != 0 {
		t.Errorf("%v allocations for a record", allocs)
	}
}

// TestCloseEndsRead also calls the other methods concurrently, for the race detector.
func TestCloseEndsRead(t *testing.T) {
	o := load(t, Options{Mode: TC})
	var group sync.WaitGroup
	read := make(chan error, 1)
	group.Go(func() {
		for {
			var record Record
			if err := o.Read(&record); err != nil {
				read <- err
				return
			}
		}
	})
	enter(t, o, loopback, 1)
	group.Go(func() {
		for range 100 {
			_, _ = o.Counters(loopback)
		}
	})
	for i := range 100 {
		run(t, o, loopback, ipv4Frame(source(i)))
	}
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-read:
		if !errors.Is(err, os.ErrClosed) {
			t.Errorf("Read ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("Read goes on after Close")
	}
	group.Wait()
	if err := o.Read(new(Record)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Read after Close gave %v", err)
	}
	if _, err := o.Counters(loopback); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Counters after Close gave %v", err)
	}
	if _, err := o.Attach(loopback, AttachOptions{}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Attach after Close gave %v", err)
	}
	if err := o.Close(); err != nil {
		t.Errorf("second Close gave %v", err)
	}
}

// TestConcurrent is for the race detector: all methods run concurrently while packets arrive.
func TestConcurrent(t *testing.T) {
	everywhere(t, func(t *testing.T, o *Observer, p *pod) {
		const rounds = 30
		var group sync.WaitGroup
		var latest atomic.Int64 // generation that was recorded
		group.Go(func() {
			for {
				var record Record
				err := o.Read(&record)
				if errors.Is(err, os.ErrClosed) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				latest.Store(int64(record.Generation))
			}
		})
		group.Go(func() {
			for {
				_, err := o.Counters(p.ifindex)
				if errors.Is(err, os.ErrClosed) {
					return
				}
				if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
					t.Error(err)
					return
				}
			}
		})
		for generation := range uint32(rounds) {
			a := p.attach(t, o, generation)
			p.send(t, ipv4Frame("10.0.0.7"))
			wantState(t, a, "in between", Attached)
			if err := a.Close(); err != nil {
				t.Error(err)
			}
		}
		last := p.attach(t, o, rounds)
		// A busy machine with one processor may leave the reader none until here. Packets may be refused, because there were many.
		poll(t, func() bool {
			p.send(t, ipv4Frame("10.0.0.7"))
			return latest.Load() == rounds
		})
		if err := o.Close(); err != nil {
			t.Error(err)
		}
		wantState(t, last, "after closing the observer", Detached)
		group.Wait()
	})
}
