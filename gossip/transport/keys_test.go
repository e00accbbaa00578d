package transport

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestParseKeys(t *testing.T) {
	one, two := keyText(1, 32), keyText(2, 16)
	var many []string
	for i := range maxKeys + 1 {
		many = append(many, keyText(byte(i), 16))
	}
	for _, test := range []struct {
		name, text string
		want       string // first bytes of the keys
		err        string
	}{
		{"one", one, "\x01", ""},
		{"order, comments, spaces", "# the new one\n" + two + " \r\n\n  " + one + "\n# " + one, "\x02\x01", ""},
		{"twice", one + "\n" + two + "\n" + one, "\x01\x02", ""},
		{"24 bytes", keyText(3, 24), "\x03", ""},
		{"as many as can be", strings.Join(many[:3], "\n"), "\x00\x01\x02", ""},
		{"empty", "", "", "no key"},
		{"comments only", "# nothing\n", "", "no key"},
		{"not base64", one + "\nsecret!", "", "line 2 is not base64"},
		{"size", one + "\n" + keyText(1, 20), "", "line 2 has 20 bytes"},
		{"padding is missing", strings.TrimRight(two, "="), "", "line 1 is not base64"},
		{"too many", strings.Join(many, "\n"), "", "17 keys"},
		{"a long line", strings.Repeat("A", 70<<10), "", "more than"},
		{"too large", strings.Repeat("#\n", maxKeyFile), "", "more than"},
	} {
		path := filepath.Join(t.TempDir(), "keys")
		if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		secrets, _, err := readKeys(path)
		got := ""
		for _, secret := range secrets {
			got += string(secret[:1])
		}
		if err != nil && (test.err == "" || !strings.Contains(err.Error(), test.err)) || err == nil && test.err != "" || got != test.want {
			t.Errorf("%s: %q, %v", test.name, got, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error quotes the file: %v", test.name, err)
		}
		if count, err2 := CountKeys(path); count != len(test.want) || (err2 == nil) != (err == nil) {
			t.Errorf("%s: %d keys, %v", test.name, count, err2)
		}
	}
}

func TestKeyFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	writeKeys(t, path, 1)
	var log output
	try := func(path string) string {
		log = output{}
		if _, err := OpenKeys(path, slog.New(slog.NewTextHandler(&log, nil))); err != nil {
			return err.Error()
		}
		return log.String()
	}
	for mode, want := range map[os.FileMode]string{
		0o400: "", 0o640: "", 0o644: "all users of this node can read", 0o660: "others than its owner may write it (mode 0660)", 0o602: "others than its owner may write",
	} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if got := try(path); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("mode %o: %q", mode, got)
		}
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Dir(path): "it is not a regular file",
		fifo:               "it is not a regular file",
		path + "x":         "no such file or directory",
	} {
		if got := try(path); got != "gossip key file "+path+": "+want {
			t.Errorf("%s: %q", path, got)
		}
	}
	l := listenAt(t, "127.0.0.1")
	if _, err := New(Options{KeyFile: fifo, Sockets: l}); err == nil {
		t.Error("a transport starts without its keys")
	}
	again, err := Listen("127.0.0.1", int(l.UDPConn.LocalAddr().(*net.UDPAddr).Port))
	if err != nil {
		t.Fatal("it still listens:", err)
	}
	again.Close()
}

// The file is read again every 10 seconds; what is wrong with it is logged once and changes nothing.
func TestKeysAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "keys")
		writeKeys(t, path, 1)
		n := open(t, 1, func(o *Options) { o.KeyFile, o.Sockets = path, newPipes() })
		replace := func(text string) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		removed := func() { os.Remove(path) }
		const stays = "; the previous keys stay active"
		for i, step := range []struct {
			change  func()
			first   byte // of the keys
			count   int
			problem string
			lines   int // of the log, more
		}{
			{func() {}, 1, 1, "", 0},
			{func() { writeKeys(t, path, 2, 1) }, 2, 2, "", 1},
			{func() { replace(keyText(2, 32) + "\n# as before\n" + keyText(1, 32)) }, 2, 2, "", 0},
			{func() { replace("# a slip") }, 2, 2, "it has no key; make one with: head -c 32 /dev/urandom | base64" + stays, 1},
			{func() {}, 2, 2, "it has no key; make one with: head -c 32 /dev/urandom | base64" + stays, 0},
			{removed, 2, 2, "no such file or directory" + stays, 1},
			{func() { writeKeys(t, path, 2, 1) }, 2, 2, "", 1},
			{func() { // as volumes of Kubernetes change
				writeKeys(t, path+"3", 3)
				os.Remove(path)
				os.Symlink(path+"3", path)
			}, 3, 1, "", 1},
		} {
			before := strings.Count(n.log.String(), "\n")
			step.change()
			time.Sleep(keyPoll)
			synctest.Wait()
			list := n.keys.list()
			problem := strings.TrimPrefix(n.problem(), "gossip key file "+path+": ")
			lines := strings.Count(n.log.String(), "\n") - before
			if len(list) != step.count || list[0].secret[0] != step.first || problem != step.problem || lines != step.lines {
				t.Errorf("step %d: %d keys, the first is %d; problem %q, %d lines", i, len(list), list[0].secret[0], problem, lines)
			}
		}
		for b := range byte(4) {
			if strings.Contains(n.log.String(), keyText(b, 32)) {
				t.Errorf("the log has a key:\n%s", n.log)
			}
		}
		n.stop()
	})
}

// All agents take a new key in three steps, one after another, while datagrams and streams go between all
// of them: none is lost. The old key is worth nothing afterwards.
func TestRotation(t *testing.T) {
	var paths []string
	var nodes []*node
	for i := range 3 {
		path := filepath.Join(t.TempDir(), "keys")
		writeKeys(t, path, 1)
		paths = append(paths, path)
		nodes = append(nodes, open(t, idAt(i), func(o *Options) { o.KeyFile = path }))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var datagrams, streams atomic.Int64
	for _, from := range nodes {
		for _, to := range nodes {
			if from == to {
				continue
			}
			wg.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					m := message{from.ID, false, fmt.Sprint(from.ID, i)}
					if err := from.Send(to.ID, to.at, []byte(m.payload)); err != nil {
						t.Error(err)
					}
					for until := time.Now().Add(patience); !to.last(m); time.Sleep(100 * time.Microsecond) {
						if time.Now().After(until) {
							t.Errorf("datagram %d is lost: %s", i, to.dropped())
							return
						}
					}
					datagrams.Add(1)
				}
			})
			wg.Go(func() {
				for ctx.Err() == nil {
					if reply, err := from.request(t.Context(), to, to.ID, []byte("request")); err != nil || string(reply) != "request" {
						t.Errorf("a stream is lost: %q, %v", reply, err)
						return
					}
					streams.Add(1)
				}
			})
		}
	}
	more := func() { // of both, from everybody
		t.Helper()
		d, s := datagrams.Load(), streams.Load()
		eventually(t, "some have passed", func() bool { return t.Failed() || datagrams.Load() > d+60 && streams.Load() > s+20 })
	}
	more()
	recorded := nodes[0].record(nodes[1].ID, "recorded")
	for _, step := range [][]byte{{1, 2}, {2, 1}, {2}} {
		for i, n := range nodes {
			writeKeys(t, paths[i], step...)
			n.keys.reload()
			more()
		}
	}
	cancel()
	wg.Wait()
	for _, n := range nodes {
		if n.dropped() != "" || n.problem() != "" {
			t.Errorf("%s; %s", n.dropped(), n.problem())
		}
	}
	t.Log(datagrams.Load(), "datagrams,", streams.Load(), "streams")
	sendTo(t, outsider(t), nodes[1], recorded)
	eventually(t, "the old key opens nothing", func() bool { return nodes[1].dropped() == "key 1" })
	if err := open(t, 9, keys(t, 1)).echo(nodes[1]); err == nil || err.Error() != errOtherKey.Error() {
		t.Errorf("with the old key: %v", err)
	}
}
