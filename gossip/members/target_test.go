package members

import (
	"context"
	"fmt"
	"slices"
	"testing"
)

func TestParseTarget(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1":          "10.0.0.1:7951",
		"10.0.0.1:80":       "10.0.0.1:80",
		"::ffff:10.0.0.1":   "10.0.0.1:7951",
		"fd00::1":           "[fd00::1]:7951",
		"[fd00::1]":         "[fd00::1]:7951",
		"[fd00::1]:80":      "[fd00::1]:80",
		"dupip":             "dupip:7951",
		"dupip.example:80":  "dupip.example:80",
		"dupip.example.:80": "dupip.example.:80",
		"":                  "",
		":80":               "",
		"a:b":               "",
		"a:0":               "",
		"a:65536":           "",
		"a/10.0.0.1:80":     "", // memberlist takes the beginning for a name
		"a b":               "",
		"0.0.0.0":           "",
		"224.0.0.1:80":      "",
		"fe80::1%eth0":      "",
		"http://a:80":       "",
		"10.0.0.256":        "", // nor are addresses with a mistake names
		"10.0.0:80":         "",
		"010.0.0.1":         "",
		"1.example":         "1.example:7951",
		"a..b":              "",
		"$NODE":             "",
		"a,b":               "",
		"a.b_c-d":           "a.b_c-d:7951",
	} {
		target, err := parseTarget(text, DefaultPort)
		got := target.at.String()
		if target.host != "" {
			got = fmt.Sprintf("%s:%d", target.host, target.at.Port())
		}
		if err != nil && want != "" || err == nil && got != want {
			t.Errorf("%q: %v, %v, want %q", text, got, err, want)
		}
	}
}

func TestResolve(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, test := range []struct {
		ctx                   context.Context
		join                  []string
		addresses, unresolved []string
	}{
		{t.Context(), []string{"127.0.0.2", "127.0.0.3:8", "[::1]:9", "::2"}, []string{"127.0.0.2:7", "127.0.0.3:8", "[::1]:9", "[::2]:7"}, nil},
		{ended, []string{"127.0.0.2", "dupip.invalid", "dupip.invalid:8"}, []string{"127.0.0.2:7"}, []string{"dupip.invalid", "dupip.invalid:8"}},
		{t.Context(), []string{"127.0.0.2", "no name", "127.0.0.2:0"}, []string{"127.0.0.2:7"}, []string{"no name", "127.0.0.2:0"}},
	} {
		addresses, unresolved := Resolve(test.ctx, test.join, 7)
		var texts []string
		for _, address := range addresses {
			texts = append(texts, fmt.Sprint(address))
		}
		if !slices.Equal(texts, test.addresses) || !slices.Equal(unresolved, test.unresolved) {
			t.Errorf("%q: %q and %q, want %q and %q", test.join, texts, unresolved, test.addresses, test.unresolved)
		}
	}
}
