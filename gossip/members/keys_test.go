package members

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/dupip/dupip/gossip/wire"
)

// keyText is the text of a key of size times one byte.
func keyText(b byte, size int) string {
	return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, size))
}

func writeKeys(t *testing.T, path string, lines ...string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
}

func keyFile(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	writeKeys(t, path, lines...)
	return path
}

func TestParseKeys(t *testing.T) {
	one, two := keyText(1, 32), keyText(2, 16)
	for _, test := range []struct {
		name, text string
		want       string // first bytes of the keys
		err        string
	}{
		{"one", one, "\x01", ""},
		{"order, comments, spaces", "# the new one\n" + two + " \r\n\n  " + one + "\n# " + one, "\x02\x01", ""},
		{"twice", one + "\n" + two + "\n" + one, "\x01\x02", ""},
		{"24 bytes", keyText(3, 24), "\x03", ""},
		{"empty", "", "", "no key"},
		{"comments only", "# nothing\n", "", "no key"},
		{"not base64", one + "\nsecret!", "", "line 2 is not base64"},
		{"size", one + "\n" + keyText(1, 20), "", "line 2 has 20 bytes"},
		{"padding is missing", strings.TrimRight(two, "="), "", "line 1 is not base64"},
		{"too many", strings.Join(manyKeys(17), "\n"), "", "17 keys"},
		{"too large", strings.Repeat("#\n", maxKeyFile), "", "more than"},
	} {
		list, err := parseKeys([]byte(test.text))
		got := ""
		for _, key := range list {
			got += string(key[:1])
		}
		if err != nil && (test.err == "" || !strings.Contains(err.Error(), test.err)) || err == nil && test.err != "" || err == nil && got != test.want {
			t.Errorf("%s: %q, %v", test.name, got, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error quotes the file: %v", test.name, err)
		}
	}
}

func manyKeys(n int) (all []string) {
	for i := range n {
		all = append(all, keyText(byte(i), 16))
	}
	return all
}

func TestKeyFileModes(t *testing.T) {
	path := keyFile(t, keyText(1, 32))
	var log bytes.Buffer
	for mode, want := range map[os.FileMode]string{
		0o400: "", 0o640: "", 0o644: "all users of this node can read", 0o660: "others than its owner may write", 0o602: "others than its owner may write",
	} {
		log.Reset()
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		_, err := openKeys(path, slog.New(slog.NewTextHandler(&log, nil)))
		got := log.String()
		if err != nil {
			got += err.Error()
		}
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("mode %o: %q", mode, got)
		}
	}
	if _, err := openKeys(filepath.Dir(path), slog.Default()); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a folder: %v", err)
	}
	if _, err := openKeys(path+"x", slog.Default()); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("no file: %v", err)
	}
}

// Keys change while packets are opened by other goroutines; the race detector looks on.
func TestKeysApply(t *testing.T) {
	key := func(b byte) []byte { return bytes.Repeat([]byte{b}, 16) }
	keys, err := openKeys(keyFile(t, keyText(1, 16)), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, key := range keys.ring.GetKeys() {
				if len(key) != 16 {
					t.Error("a key is broken")
				}
			}
		}
	})
	for _, list := range [][]byte{{1, 2}, {2, 1}, {2}, {3, 2, 4}, {4, 3}, {5}, {1, 2, 3, 4, 5}, {5, 1}, {2, 6, 1}, {6}} {
		var want [][]byte
		for _, b := range list {
			want = append(want, key(b))
		}
		keys.apply(want)
		if got := keys.ring.GetKeys(); !bytes.Equal(bytes.Join(got, nil), bytes.Join(want, nil)) {
			t.Errorf("%v: %v", list, got)
		}
	}
	close(stop)
	wg.Wait()
}

// A cluster takes new keys without losing a member, and the old ones are worth nothing
// afterwards.
func TestRotation(t *testing.T) {
	one, two := keyText(1, 32), keyText(2, 32)
	var files []string
	var nodes []*node
	for i := 1; i <= 3; i++ {
		files = append(files, keyFile(t, one))
		nodes = append(nodes, open(t, i, joining(nodes...), func(o *Options) { o.KeyFile = files[i-1] }))
	}
	const all = "n1:alive n2:alive n3:alive"
	talks := 0
	talk := func(when string) {
		t.Helper()
		talks++
		for _, from := range nodes {
			eventually(t, when+": all know all", func() bool { return from.states() == all })
			for _, to := range nodes {
				if from == to {
					continue
				}
				packet := fmt.Sprint(talks, from.Self().Name, strings.Repeat("x", 1000))
				eventually(t, when+": packets arrive", func() bool {
					if err := from.Send(to.Self().ID, []byte(packet)); err != nil {
						t.Fatal(err)
					}
					return to.got(packet)
				})
			}
		}
	}
	talk("first")
	for _, step := range [][]string{{one, two}, {two, one}, {two}} {
		for i, n := range nodes {
			writeKeys(t, files[i], step...)
			n.keys.look()
			talk("rotating")
		}
	}
	writeKeys(t, files[0], "# a slip")
	nodes[0].keys.look()
	nodes[0].keys.look()
	talk("with a broken file")
	problems := strings.Join(nodes[0].Status().Problems, "\n")
	if !strings.Contains(problems, "has no key") || strings.Count(nodes[0].log.String(), "level=ERROR") != 1 {
		t.Errorf("problems %q, log\n%s", problems, nodes[0].log)
	}
	os.Remove(files[0])
	if err := os.Symlink(files[1], files[0]); err != nil {
		t.Fatal(err)
	}
	nodes[0].keys.look()
	for _, n := range nodes {
		if problems := n.Status().Problems; len(problems) > 0 {
			t.Errorf("problems: %q", problems)
		}
		if strings.Contains(n.all(), "-") || strings.Contains(n.all(), "=") {
			t.Errorf("members were lost: %s", n.all())
		}
		if log := n.log.String(); strings.Contains(log, one) || strings.Contains(log, two) {
			t.Errorf("the log has a key:\n%s", log)
		}
	}

	for name, change := range map[string]func(*Options){
		"of the old key": func(o *Options) { o.KeyFile = keyFile(t, one) },
		"without a key":  func(*Options) {},
	} {
		outsider := open(t, 9, joining(nodes[0]), change)
		want := "other keys"
		if outsider.keys == nil {
			want = "has a --gossip-key-file"
		}
		eventually(t, "one "+name+" is told why it is alone", func() bool {
			return strings.Contains(strings.Join(outsider.Status().Problems, "\n"), want)
		})
		eventually(t, "it is noticed", func() bool {
			return nodes[0].Status().Dropped["key"] > 0 && len(nodes[0].Status().Problems) > 0
		})
		if got := nodes[0].states(); got != all {
			t.Errorf("one %s: %s", name, got)
		}
		outsider.stop()
	}
}

// measuring notes the size of the largest datagram.
type measuring struct {
	*network
	largest *atomic.Int64
}

func (m measuring) WriteToAddress(b []byte, to memberlist.Address) (time.Time, error) {
	m.largest.Store(max(m.largest.Load(), int64(len(b)))) // about
	return m.network.WriteToAddress(b, to)
}

func measured(t *testing.T, largest *atomic.Int64) func(*Options) {
	return func(o *Options) {
		n, err := listenNetwork(o.Bind, 0, nil, new(drops))
		if err != nil {
			t.Fatal(err)
		}
		o.Transport, o.Advertise, o.Port = measuring{n, largest}, o.Bind, n.port()
	}
}

// The largest packet fits a datagram of an ordinary network with the longest label and
// encryption; broadcasts of that size are sent, too.
func TestLargestPacket(t *testing.T) {
	path := keyFile(t, keyText(1, 32))
	secret := func(o *Options) { o.KeyFile, o.Label = path, strings.Repeat("l", MaxLabel) }
	var largest atomic.Int64
	first := open(t, 1, secret, measured(t, &largest))
	second := open(t, 2, secret, joining(first))
	eventually(t, "two", func() bool { return first.states() == "n1:alive n2:alive" && second.states() == "n1:alive n2:alive" })
	packet, payload := strings.Repeat("p", wire.MaxPacket), strings.Repeat("b", wire.MaxPacket)
	if err := first.Send(second.Self().ID, []byte(packet)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the packet", func() bool { return second.got(packet) })
	first.Broadcast("key", []byte(payload))
	eventually(t, "the broadcast", func() bool { return second.got(payload) })
	if got := largest.Load(); got < wire.MaxPacket || got > packetBudget {
		t.Errorf("a datagram has %d bytes", got)
	}
	if _, err := Open(Options{Node: "n", Boot: "b", Label: strings.Repeat("l", MaxLabel+1)}); err == nil {
		t.Error("a longer label is taken")
	}
}
