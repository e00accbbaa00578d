package metrics

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestClean(t *testing.T) {
	long := strings.Repeat("x", maxLabel)
	for _, test := range []struct{ in, want string }{
		{"", ""},
		{"shop/web-0", "shop/web-0"},
		{"two words", "two words"},
		{"ümläut 日本", "ümläut 日本"},
		{"a\nb\tc\x00d\x7fe", "a?b?c?d?e"},
		{"\x1b[31mred\x1b[0m", "?[31mred?[0m"},
		{"turned\u202eround\u200b", "turned?round?"},
		{"\u0085next\u2028line", "?next?line"},
		{"broken \xff\xc3(", "broken ??("},
		{long, long},
		{long + "y", long[:maxLabel-3] + "…"},
		{strings.Repeat("日", 43), strings.Repeat("日", 41) + "…"},
		{strings.Repeat("é", 64), strings.Repeat("é", 64)},
	} {
		if got := escape(test.in); got != test.want {
			t.Errorf("escape(%q) = %q, want %q", test.in, got, test.want)
		}
	}
}

func FuzzClean(f *testing.F) {
	for _, s := range []string{"", "a\xffb", strings.Repeat("\u202e", 60), strings.Repeat("日", 43), strings.Repeat("x", 127) + "é"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := escape(s)
		if len(got) > maxLabel || !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			t.Errorf("escape(%q) = %q", s, got)
		}
		if again := escape(got); again != got {
			t.Errorf("escape(%q) = %q, escaped again %q", s, got, again)
		}
	})
}

func TestByWord(t *testing.T) {
	got := byLabel(map[string]uint64{
		"evicted: table full": 1, "Evicted table full": 2, "older than the TTL": 3, "solicit: off": 4, "same-node": 5,
	})
	for word, want := range map[string]uint64{
		"evicted_table_full": 3, "older_than_the_ttl": 3, "solicit_off": 4, "same-node": 5,
	} {
		if got[word] != want {
			t.Errorf("%s: %d, want %d", word, got[word], want)
		}
	}
	if len(got) != 4 {
		t.Errorf("%v, want 4 words", got)
	}
	many := make(map[string]int)
	for i := range 1000 {
		many[fmt.Sprintf("reason %03d", i)] = 1
	}
	if sums := byLabel(many); len(sums) != maxLabels || sums["other"] != 1000-(maxLabels-1) {
		t.Errorf("%d words, %d other; want %d and %d", len(sums), sums["other"], maxLabels, 1000-(maxLabels-1))
	}
}
