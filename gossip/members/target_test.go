package members

import (
	"context"
	"fmt"
	"slices"
	"strings"
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
		refused               string
	}{
		{t.Context(), []string{"127.0.0.2", "127.0.0.3:8", "[::1]:9", "::2"}, []string{"127.0.0.2:7", "127.0.0.3:8", "[::1]:9", "[::2]:7"}, nil, ""},
		{ended, []string{"127.0.0.2", "dupip.invalid", "dupip.invalid:8"}, []string{"127.0.0.2:7"}, []string{"dupip.invalid", "dupip.invalid:8"}, ""},
		{t.Context(), []string{"127.0.0.2", "no name"}, nil, nil, "no name"},
		{t.Context(), []string{"127.0.0.2:0"}, nil, nil, "port"},
	} {
		addresses, unresolved, err := Resolve(test.ctx, test.join, 7)
		if (err == nil) != (test.refused == "") || err != nil && !strings.Contains(err.Error(), test.refused) {
			t.Errorf("%q: error %v, want %q", test.join, err, test.refused)
		}
		var texts []string
		for _, address := range addresses {
			texts = append(texts, fmt.Sprint(address))
		}
		if !slices.Equal(texts, test.addresses) || !slices.Equal(unresolved, test.unresolved) {
			t.Errorf("%q: %q and %q, want %q and %q", test.join, texts, unresolved, test.addresses, test.unresolved)
		}
	}
}
