package wire

import (
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/internal/ownnetns"
)

// BenchmarkListening is what packets of others cost on a device that is listened on (on), and on one that is not (off): UDP packets that arrive, one by one,
// and 64 KiB of TCP.
func BenchmarkListening(b *testing.B) {
	far := ownnetns.NewPod(b)
	for _, args := range [][]string{
		{"link", "add", "up0", "type", "veth", "peer", "name", "up1", "netns", strconv.Itoa(far.Pid)}, {"addr", "add", "10.0.0.1/24", "dev", "up0"}, {"link", "set", "up0", "up"},
	} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			b.Fatal(string(out), err)
		}
	}
	defer exec.Command("ip", "link", "del", "up0").Run()
	for _, args := range []string{"addr add 10.0.0.2/24 dev up1", "link set up1 up"} {
		if out, err := exec.Command("nsenter", append([]string{"--net=" + far.Path(), "ip"}, strings.Fields(args)...)...).CombinedOutput(); err != nil {
			b.Fatal(string(out), err)
		}
	}
	server, err := net.Listen("tcp", "10.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer server.Close()
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, conn) }()
		}
	}()
	sink, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("10.0.0.1:0")))
	if err != nil {
		b.Fatal(err)
	}
	defer sink.Close()
	var udp, tcp net.Conn
	inside(b, far, func() {
		if udp, err = net.Dial("udp", sink.LocalAddr().String()); err == nil {
			tcp, err = net.Dial("tcp", server.Addr().String())
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	for _, state := range []string{"off", "on", "off", "on", "off", "on"} {
		w := New(slog.New(slog.DiscardHandler))
		if state == "on" {
			w.Follow([]string{"up0"}, nil)
		}
		b.Run("packet/"+state, func(b *testing.B) {
			data := make([]byte, 64)
			for b.Loop() {
				if _, err := udp.Write(data); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("tcp/"+state, func(b *testing.B) {
			data := make([]byte, 1<<16)
			b.SetBytes(1 << 16)
			for b.Loop() {
				if _, err := tcp.Write(data); err != nil {
					b.Fatal(err)
				}
			}
		})
		w.Close()
	}
}

// inside runs f in a netns.
func inside(b *testing.B, pod *ownnetns.Pod, f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		b.Fatal(err)
	}
	defer own.Close()
	to, err := os.Open(pod.Path())
	if err != nil {
		b.Fatal(err)
	}
	defer to.Close()
	if err := unix.Setns(int(to.Fd()), unix.CLONE_NEWNET); err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); err != nil {
			b.Fatal(err)
		}
	}()
	f()
}
