package transport

import (
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"testing"
	"time"
)

// Half a core is what datagrams may cost before anything limits all of them together.
func BenchmarkOpen(b *testing.B) {
	one, three := []byte{1}, []byte{1, 2, 3}
	for _, test := range []struct {
		name       string
		keys, seal []byte
		want       drop
	}{
		{"opens", one, one, 0},
		{"opens_third_key", three, []byte{3}, 0},
		{"no_key_of_1", one, []byte{9}, dropKey},
		{"no_key_of_3", three, []byte{9}, dropKey},
		{"replayed", one, one, dropReplay},
		{"other_receiver", one, one, dropReceiver},
	} {
		for _, size := range []int{100, MaxPayload} {
			b.Run(fmt.Sprint(test.name, "/", size), func(b *testing.B) {
				n, from := open(b, 9, keys(b, test.keys...)), open(b, 1, keys(b, test.seal...))
				to := n.ID
				if test.want == dropReceiver {
					to++
				}
				var datagrams [4096][]byte
				for i := range datagrams {
					datagrams[i] = from.datagram(to, kindOwn, make([]byte, size))
					if test.want == dropReplay {
						n.admitted(datagrams[i])
					}
				}
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if i %= len(datagrams); i == 0 && test.want == 0 {
						n.strangers = newWindows()
					}
					if why := n.admitted(datagrams[i]); why != test.want {
						b.Fatalf("it is refused as %q", dropNames[why])
					}
				}
				perSecond := float64(time.Second) / float64(b.Elapsed()) * float64(b.N)
				b.ReportMetric(100*25_000/perSecond, "%core@25k/s")
				b.ReportMetric(100*100_000/perSecond, "%core@100k/s")
			})
		}
	}
}

// admitted opens a datagram of a stranger, and returns why it is refused.
func (n *node) admitted(b []byte) drop {
	d, why := n.open(b)
	if why == 0 {
		why = n.admit(d, n.at)
	}
	return why
}

func BenchmarkSeal(b *testing.B) {
	n, payload := open(b, 1, keys(b, 1)), make([]byte, MaxPayload)
	b.ReportAllocs()
	for b.Loop() {
		n.datagram(9, kindOwn, payload)
	}
}

func BenchmarkRequest(b *testing.B) {
	for name, key := range map[string]func(*Options){"plain": func(*Options) {}, "sealed": keys(b, 1)} {
		b.Run(name, func(b *testing.B) {
			n, to := open(b, 1, key), open(b, 2, key)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := n.request(b.Context(), to, 2, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// What a connection costs both sides, of somebody who has no key, and says hello.
func BenchmarkRefusedHandshake(b *testing.B) {
	n := open(b, 1, keys(b, 1))
	header := append(appendHeader(nil, byteSealed, n.label, 0), byte(kindMemberlist))
	hello := recordHello(b, header)
	b.ReportAllocs()
	for b.Loop() {
		conn, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(n.at))
		if err != nil {
			b.Fatal(err)
		}
		conn.Write(append(header[:len(header):len(header)], hello...))
		if _, err := io.ReadFull(conn, make([]byte, 400)); err != nil {
			b.Fatal(err)
		}
		conn.SetLinger(0) //nolint:errcheck // no port is left waiting
		conn.Close()
	}
}

// recordHello returns the first record of a handshake.
func recordHello(b *testing.B, header []byte) []byte {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	go tls.Client(near, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{string(header)}}).Handshake() //nolint:errcheck // it is never answered
	record := make([]byte, 5)
	if _, err := io.ReadFull(far, record); err != nil {
		b.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint16(record[3:]))
	if _, err := io.ReadFull(far, body); err != nil {
		b.Fatal(err)
	}
	return append(record, body...)
}
