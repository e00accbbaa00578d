package members

import (
	"errors"
	"testing"
)

// Without a key no agent listens beyond loopback.
func TestCheckKey(t *testing.T) {
	for _, test := range []struct {
		name string
		opts Options
		want error
	}{
		{"all addresses", Options{}, ErrNoKey},
		{"an address", Options{Bind: "10.0.0.1"}, ErrNoKey},
		{"a name", Options{Bind: "localhost"}, ErrNoKey},
		{"all addresses, others are told loopback", Options{Advertise: "127.0.0.1"}, ErrNoKey},
		{"a key", Options{Bind: "10.0.0.1", KeyFile: "key"}, nil},
		{"loopback", Options{Bind: "127.0.0.2"}, nil},
		{"IPv6 loopback", Options{Bind: "::1"}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := CheckKey(test.opts); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			test.opts.Node, test.opts.Boot = "n", "boot"
			if test.want == nil {
				return
			}
			if _, err := Open(test.opts); !errors.Is(err, test.want) {
				t.Errorf("Open: got %v, want %v", err, test.want)
			}
		})
	}
}
