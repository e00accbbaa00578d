package pods

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseSocket(t *testing.T) {
	for _, test := range []struct {
		text string
		want []string
		ok   bool
	}{
		{"", DefaultSockets, true},
		{"none", nil, true},
		{"off", nil, true},
		{"/run/x.sock", []string{"/run/x.sock"}, true},
		{"unix:///run/x.sock", []string{"/run/x.sock"}, true},
		{"tcp://127.0.0.1:1", nil, false},
		{"run/x.sock", nil, false},
		{"unix://", nil, false},
		{"/" + strings.Repeat("x", 107), nil, false},
	} {
		got, err := parseSocket(test.text, DefaultSockets)
		if (err == nil) != test.ok {
			t.Errorf("%q: error %v, want ok %v", test.text, err, test.ok)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", test.text, diff)
		}
	}
}
