package members

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func airAddresses(from, to int) (all []netip.AddrPort) {
	for n := from; n <= to; n++ {
		all = append(all, airAddress(n))
	}
	return all
}

func set(all ...netip.AddrPort) map[netip.AddrPort]bool {
	s := map[netip.AddrPort]bool{}
	for _, at := range all {
		s[at] = true
	}
	return s
}

func TestMembersFile(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want int
		bad  bool
	}{
		"good":            {`{"members":["10.0.0.1:1","[fd00::1]:7951"]}`, 2, false},
		"of a later one":  {`{"members":["10.0.0.1:1"],"more":1}`, 1, false},
		"some impossible": {`{"members":["10.0.0.1:0","224.0.0.1:1","10.0.0.1:1"]}`, 1, false},
		"too many":        {`{"members":["10.0.0.1:1"` + strings.Repeat(`,"10.0.0.1:1"`, maxKnown) + `]}`, maxKnown, false},
		"empty":           {``, 0, true},
		"cut":             {`{"members":["10.0.0.1:1"`, 0, true},
		"no address":      {`{"members":["a:1"]}`, 0, true},
	} {
		path := filepath.Join(t.TempDir(), "members.json")
		if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		p := openKnown(path)
		if len(p.last) != test.want || (p.err != nil) != test.bad {
			t.Errorf("%s: %v, %v", name, p.last, p.err)
		}
		p.write(set(airAddresses(1, 3)...))
		if again := openKnown(path); p.err != nil || len(again.last) != 3 || again.err != nil {
			t.Errorf("%s: after writing %v, %v, %v", name, p.err, again.last, again.err)
		}
	}
}

// What somebody put in the place of the file is neither followed nor waited for.
func TestKnownFileIsReplaced(t *testing.T) {
	for name, place := range map[string]func(path string) error{
		"a link": func(path string) error {
			return errors.Join(os.WriteFile(path+".other", []byte(`{"members":["10.0.0.1:1"]}`), 0o600), os.Symlink(path+".other", path))
		},
		"a FIFO":   func(path string) error { return unix.Mkfifo(path, 0o600) },
		"too long": func(path string) error { return os.WriteFile(path, make([]byte, maxKnownBytes+1), 0o600) },
	} {
		path := filepath.Join(t.TempDir(), "members.json")
		if err := place(path); err != nil {
			t.Fatal(err)
		}
		p := openKnown(path)
		if p.err == nil || len(p.last) > 0 {
			t.Errorf("%s: %v, %v", name, p.last, p.err)
		}
		p.write(set(airAddresses(1, 1)...))
		if info, err := os.Lstat(path); p.err != nil || err != nil || !info.Mode().IsRegular() {
			t.Errorf("%s: written: %v, %v, %v", name, p.err, info, err)
		}
	}
}

func TestMembersAreWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "members.json")
	p := openKnown(path)
	p.write(set(airAddresses(1, 200)...))
	first := openKnown(path).last
	if len(first) != maxKnown {
		t.Fatalf("%d known", len(first))
	}
	for _, test := range []struct {
		name        string
		there, want []netip.AddrPort
	}{
		{"others are there, too", airAddresses(1, 200), first},
		{"it is alone", nil, first},
		{"three are left", first[:3], first[:3]},
		{"and one more", append(airAddresses(250, 250), first[:3]...), append(slices.Clone(first[:3]), airAddress(250))},
	} {
		p.write(set(test.there...))
		if again := openKnown(path).last; !slices.Equal(again, test.want) {
			t.Errorf("%s: %v, want %v", test.name, again, test.want)
		}
	}
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	if p.write(set(airAddresses(1, 2)...)); p.err == nil {
		t.Error("it was written nowhere")
	}
}

// An agent that starts again finds the others without a list, and says so if the file is lost.
func TestRejoinByMembersFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	inAir(t, func(t *testing.T, a *air) {
		remembering := func(o *Options) { o.MembersFile = filepath.Join(dir, "members.json") }
		first := open(t, a, 1)
		second := open(t, a, 2, joining(first), remembering)
		complete(t, time.Minute, first, second)
		second.stop()
		within(t, "it is gone", time.Minute, func() bool { return first.count() == 1 })
		again := open(t, a, 2, remembering, func(o *Options) { o.Epoch = 2 })
		complete(t, time.Minute, first, again)
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		third := open(t, a, 3, joining(first))
		complete(t, time.Minute, first, again, third)
		within(t, "it is a problem", time.Minute, func() bool { return strings.HasPrefix(again.problems(), "writing the known members") })
	})
}
