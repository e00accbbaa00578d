package wire

import (
	"strings"
	"testing"
)

func TestText(t *testing.T) {
	long := strings.Repeat("x", 9)
	for _, test := range []struct{ in, want string }{
		{"", ""},
		{"cart-0", "cart-0"},
		{"käse 漢", "käse 漢"},
		{long + "y", long + "y"},
		{long + "yz", long + "y"},
		{long + "ä", long},
		{"12345678漢", "12345678"},
		{"\x1b[31mred", "?[31mred"},
		{"a\nb\tc\x00", "a?b?c?"},
		{"a\u202eb", "a?b"}, // right to left
		{"a\u00a0b", "a?b"}, // a space that does not look like what it is
		{"a\xffb\xc3", "a?b?"},
		{strings.Repeat("\u202e", 9), "?????????"},
	} {
		b := appendText(nil, test.in, 10)
		r := reader{rest: b}
		if got := r.text(10); got != test.want || r.bad || len(r.rest) > 0 {
			t.Errorf("%q comes out as %q, want %q (refused: %t)", test.in, got, test.want, r.bad)
		}
		r = reader{rest: b}
		if r.text(len(test.want) - 1); !r.bad && test.want != "" {
			t.Errorf("%q is taken where less is allowed", test.want)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("cart-0\n漢", uint8(4))
	f.Fuzz(func(t *testing.T, s string, limit uint8) {
		b := appendText(nil, s, int(limit))
		r := reader{rest: b}
		got := r.text(int(limit))
		if r.bad || len(r.rest) > 0 {
			t.Fatalf("%q is written as %x, which is refused", s, b)
		}
		if again := clean(got, int(limit)); again != got {
			t.Fatalf("%q becomes %q and then %q", s, got, again)
		}
	})
}
