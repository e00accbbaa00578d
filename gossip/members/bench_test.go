package members

import (
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

// BenchmarkList is what it costs to list 5,000 members, whose states are asked for anew.
func BenchmarkList(b *testing.B) {
	const others = 5000
	a := &air{ports: map[string]*airPort{}}
	port := a.port(airAddress(1))
	m, err := Open(Options{Node: "n1", Boot: "b", Version: "v1", Transport: port, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer m.list.Shutdown()
	before := heap()
	for i := range others {
		id := identity{
			Name: fmt.Sprintf("node-%d.cluster.example", i), Boot: "8d0f3d1e-3c4c-4c55-a3a5-0f3a5b0f9c11", Epoch: int64(i), Version: "v1.2.3",
		}
		port.packets <- &memberlist.Packet{
			Buf: pack(b, 4, aliveMessage{
				1, memberName(id.Name, id.id()), []byte{10, 1, byte(i / 256), byte(i)}, 7951, id.encode(), []byte{1, 5, 2, 0, 0, 0},
			}),
			From: &net.UDPAddr{}, Timestamp: time.Now(),
		}
		for m.table.live() < i {
			time.Sleep(time.Microsecond)
		}
	}
	for m.table.live() <= others {
		time.Sleep(time.Millisecond)
	}
	b.Logf("a member takes %d bytes, with those of memberlist", (heap()-before)/others)
	b.ReportAllocs()
	for b.Loop() {
		m.asked = time.Time{}
		if len(m.List()) != others+1 {
			b.Fatal("somebody is missing")
		}
	}
}

func heap() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
