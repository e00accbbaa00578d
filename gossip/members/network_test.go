package members

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
)

func TestListenErrors(t *testing.T) {
	n := open(t, 1)
	for _, test := range []struct {
		bind string
		port int
		want string
	}{
		{"127.0.0.1", int(mustAddrPort(n).Port()), "the port is in use; stop the program that uses it, or choose another --gossip-port"},
		{"192.0.2.1", 7951, "this node does not have the address; choose another --bind"},
		{"eth0", 7951, `--bind "eth0" is not an address`},
	} {
		_, err := Open(Options{Node: "n", Boot: "b", Bind: test.bind, Port: test.port})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", test.bind, err)
		}
	}
}

// An address for all families takes packets of both, and names the sender as others do.
func TestBothFamilies(t *testing.T) {
	for _, test := range []struct {
		bind string
		from []string
	}{
		{"", []string{"127.0.0.1", "::1"}},
		{"::", []string{"127.0.0.1", "::1"}},
		{"0.0.0.0", []string{"127.0.0.1"}},
		{"::1", []string{"::1"}},
	} {
		var drops drops
		n, err := listenNetwork(test.bind, 0, nil, &drops)
		if err != nil {
			t.Fatal(err)
		}
		for _, from := range test.from {
			other, err := listenNetwork(from, 0, nil, &drops)
			if err != nil {
				t.Fatal(err)
			}
			to := netip.AddrPortFrom(netip.MustParseAddr(from), uint16(n.port())).String()
			if _, err := other.WriteTo([]byte("to"), to); err != nil {
				t.Errorf("%q from %s: %v", test.bind, from, err)
			}
			packet := <-n.packets
			if _, err := n.WriteToAddress([]byte("back"), memberlist.Address{Addr: packet.From.String()}); err != nil {
				t.Errorf("%q back to %s: %v", test.bind, packet.From, err)
			}
			if back := <-other.packets; string(back.Buf) != "back" || string(packet.Buf) != "to" {
				t.Errorf("%q: %q, %q", test.bind, packet.Buf, back.Buf)
			}
			conn, err := n.DialTimeout(net.JoinHostPort(from, fmt.Sprint(other.port())), time.Second)
			if err != nil {
				t.Errorf("%q: dialling %s: %v", test.bind, from, err)
			} else {
				conn.Close()
			}
			other.Shutdown()
		}
		n.Shutdown()
	}
}

// memberlist knows a node that cannot be reached by the type of the error.
func TestNetworkErrors(t *testing.T) {
	var drops drops
	n, err := listenNetwork("127.0.0.1", 0, nil, &drops)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Shutdown()
	for _, to := range []string{"localhost:7951", "?0102:7951", "127.0.0.1:0", "0.0.0.0:1", "127.0.0.1", ""} {
		if _, err := n.WriteTo([]byte("x"), to); err == nil {
			t.Errorf("sent to %q", to)
		}
		if conn, err := n.DialTimeout(to, time.Second); err == nil {
			conn.Close()
			t.Errorf("dialled %q", to)
		}
	}
	free, err := listenNetwork("127.0.0.1", 0, nil, &drops)
	if err != nil {
		t.Fatal(err)
	}
	free.Shutdown()
	_, err = n.DialTimeout(fmt.Sprintf("127.0.0.1:%d", free.port()), time.Second)
	if failed, ok := err.(*net.OpError); !ok || failed.Op != "dial" { //nolint:errorlint // as memberlist does it
		t.Errorf("dialling nobody: %#v", err)
	}
	_, err = n.WriteTo(make([]byte, 1<<17), "127.0.0.1:1")
	if failed, ok := err.(*net.OpError); !ok || failed.Op != "write" { //nolint:errorlint // as memberlist does it
		t.Errorf("sending too much: %#v", err)
	}
}

func TestAdvertised(t *testing.T) {
	for _, test := range []struct{ advertise, bind, want string }{
		{"", "127.0.0.5", "127.0.0.5:7"},
		{"", "fd00::1", "[fd00::1]:7"},
		{"10.0.0.1", "127.0.0.5", "10.0.0.1:7"},
		{"10.0.0.1:80", "0.0.0.0", "10.0.0.1:80"},
		{"[fd00::1]:80", "", "[fd00::1]:80"},
		{"localhost:9", "", "127.0.0.1:9"},
		{"0.0.0.0", "", ""},
		{"a:b", "", ""},
		{"", "fe80::1%lo", ""},
	} {
		at, err := advertised(test.advertise, test.bind, 7)
		got := strings.Replace(at.String(), "[::1]:9", "127.0.0.1:9", 1)
		if err != nil && test.want != "" || err == nil && got != test.want {
			t.Errorf("%q, %q: %v, %v", test.advertise, test.bind, at, err)
		}
		if err != nil && test.advertise != "" && !strings.Contains(err.Error(), "--advertise") {
			t.Errorf("%q, %q: %v", test.advertise, test.bind, err)
		}
	}
}

func TestOtherCluster(t *testing.T) {
	first := open(t, 1)
	for i, label := range []string{"other", ""} {
		n := open(t, 2+i, joining(first), func(o *Options) { o.Label = label })
		eventually(t, "it is said why it is alone", func() bool {
			return strings.Contains(strings.Join(n.Status().Problems, "\n"), "does its --cluster have another name?")
		})
		eventually(t, "it is noticed", func() bool { return first.Status().Dropped["label"] > uint64(i) })
		if n.states() != fmt.Sprintf("n%d:alive", 2+i) || first.states() != "n1:alive" {
			t.Errorf("%s, %s", n.states(), first.states())
		}
	}
}

// Nobody there is one short clause, and none when somebody is.
func TestAloneIsSaid(t *testing.T) {
	free, err := listenNetwork("127.0.0.7", 0, nil, new(drops))
	if err != nil {
		t.Fatal(err)
	}
	free.Shutdown()
	n := open(t, 1, func(o *Options) { o.Join = []string{fmt.Sprintf("127.0.0.7:%d", free.port())} })
	want := fmt.Sprintf("this node is alone: joining 127.0.0.7:%d: dial tcp 127.0.0.7:%d: connect: connection refused", free.port(), free.port())
	eventually(t, "it is said", func() bool {
		problems := n.Status().Problems
		return len(problems) == 1 && problems[0] == want
	})
	open(t, 2, joining(n))
	eventually(t, "it is not said any more", func() bool { return len(n.Status().Problems) == 0 })
	if status := n.Status(); status.JoinsFailed == 0 || status.Address != n.Self().Address || status.Encrypted || status.Label != "test" {
		t.Errorf("status: %+v", status)
	}
}
