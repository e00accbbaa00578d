package config

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// Every kind of mistake is told on one line, with what to do.
func TestMistakes(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"network: []", `line 1, column 1: unknown key "network"; the keys here are networks, shared, ignore, limits`},
		{"networks: 5", `line 1: networks: "5" is not a list; write one entry per line, each after a -`},
		{"networks: {a: b}", "line 1: networks: a mapping is not a list; write one entry per line, each after a -"},
		{"shared: 10.0.0.1", `line 1: shared: "10.0.0.1" is not a list; write one entry per line, each after a -`},
		{"a", `line 1, column 1: "a" is not a mapping; write keys and values, of the keys networks, shared, ignore, limits`},
		{"- a", "line 1, column 1: a list is not a mapping; write keys and values, of the keys networks, shared, ignore, limits"},
		{"5", `line 1, column 1: "5" is not a mapping; write keys and values, of the keys networks, shared, ignore, limits`},
		{"[]", "line 1, column 1: a list is not a mapping; write keys and values, of the keys networks, shared, ignore, limits"},
		{"limits: []", "line 1: limits: a list is not a mapping; write keys and values, of the keys bindings, bindingsPerInterface, history, verifyPerSecond, refreshPerSecond"},
		{"ignore: [a]", "line 1: ignore: a list is not a mapping; write keys and values, of the keys interfaces"},
		{"1: 2", `line 1, column 1: unknown key "1"; the keys here are networks, shared, ignore, limits`},
		{"null: 2", `line 1, column 1: unknown key "null"; the keys here are networks, shared, ignore, limits`},
		{"[a]: b", "line 1, column 4: not valid YAML: found an invalid key for this map; check indentation, colons, quotes and brackets"},
		{"networks:\n  -", "line 2: networks[0]: is empty; give the network a name, or remove the entry"},
		{"networks:\n  - storage", `line 2: networks[0]: "storage" is not a mapping; write keys and values, of the keys name, scope, solicit, match`},
		{"networks:\n  - {}", "line 2: networks[0]: has no name; add one, as in name: storage"},
		{"networks:\n  - scope: node", "line 2: networks[0]: has no name; add one, as in name: storage"},
		{"networks:\n  - name:", "line 2: networks[0].name: has no value; write one"},
		{"networks:\n  - name: 7", `line 2: networks[0].name: "7" is not text; put it in quotes`},
		{"networks:\n  - name: true", `line 2: networks[0].name: "true" is not text; put it in quotes`},
		{"networks:\n  - name: [a]", "line 2: networks[0].name: a list is not text; write one value, in quotes if it has a colon"},
		{"networks:\n  - name: \"\"", "line 2: networks[0].name: is empty; give the network a name"},
		{"networks:\n  - name: a/b", `line 2: networks[0].name: "a/b" is not a name; use letters, digits and @ . _ - only`},
		{"networks:\n  - name: \"a\\e[31mb\\n\"", `line 2: networks[0].name: "a\x1b[31mb\n" is not a name; use letters, digits and @ . _ - only`},
		{"networks:\n  - name: ä", `line 2: networks[0].name: "ä" is not a name; use letters, digits and @ . _ - only`},
		{"networks:\n  - name: default.100", `line 2: networks[0].name: "default.100" ends as the name of a VLAN does; a VLAN belongs to its network, so write "default"`},
		{"networks:\n  - name: a.b.1", `line 2: networks[0].name: "a.b.1" ends as the name of a VLAN does; a VLAN belongs to its network, so write "a.b"`},
		{"networks:\n  - name: a\n      b", `line 2: networks[0].name: "a b" is not a name; use letters, digits and @ . _ - only`},
		{"networks:\n  - name: a\n    scope: nodes", `line 3: networks[0].scope: "nodes" is not a scope; write cluster or node`},
		{"networks:\n  - name: a\n    scope:", "line 3: networks[0].scope: no value is not a scope; write cluster or node"},
		{"networks:\n  - name: a\n    scope: Node", `line 3: networks[0].scope: "Node" is not a scope; write cluster or node`},
		{"networks:\n  - name: a\n    solicit: no", `line 3: networks[0].solicit: "no" is not a switch; write on or off`},
		{"networks:\n  - name: a\n    solicit:", "line 3: networks[0].solicit: no value is not a switch; write on or off"},
		{"networks:\n  - name: a\n    solicit: 0", `line 3: networks[0].solicit: "0" is not a switch; write on or off`},
		{"networks:\n  - name: a\n    solicit: [off]", "line 3: networks[0].solicit: a list is not a switch; write on or off"},
		{"networks:\n  - name: a\n    solicitt: off", `line 3: networks[0]: unknown key "solicitt"; the keys here are name, scope, solicit, match`},
		{"networks:\n  - name: a\n    name: b", "line 3: networks[0].name: the key is on line 2 already; remove one of the two"},
		{"networks:\n  - name: a\n    scope: node\n    \"scope\": node", "line 4: networks[0].scope: the key is on line 3 already; remove one of the two"},
		{"networks:\n  - name: a\n    match:", "line 3: networks[0].match: is empty; name interfaces, peers, bridges or cidrs, or leave the key out"},
		{"networks:\n  - name: a\n    match: {}", "line 3: networks[0].match: is empty; name interfaces, peers, bridges or cidrs, or leave the key out"},
		{"networks:\n  - name: a\n    match: []", "line 3: networks[0].match: a list is not a mapping; write keys and values, of the keys interfaces, peers, bridges, cidrs"},
		{"networks:\n  - name: a\n    match: a", `line 3: networks[0].match: "a" is not a mapping; write keys and values, of the keys interfaces, peers, bridges, cidrs`},
		{"networks: [{name: a, match: {interface: [a]}}]", `line 1: networks[0].match: unknown key "interface"; the keys here are interfaces, peers, bridges, cidrs`},
		{"networks: [{name: a, match: {interfaces: a}}]", `line 1: networks[0].match.interfaces: "a" is not a list; write one entry per line, each after a -`},
		{"networks: [{name: a, match: {interfaces: []}}]", "line 1: networks[0].match.interfaces: is empty; name at least one, or leave the key out"},
		{"networks: [{name: a, match: {peers: }}]", "line 1: networks[0].match.peers: is empty; name at least one, or leave the key out"},
		{`networks: [{name: a, match: {bridges: [""]}}]`, "line 1: networks[0].match.bridges[0]: is empty; write a name or a pattern such as cali*"},
		{`networks: [{name: a, match: {interfaces: ["a["]}}]`, `line 1: networks[0].match.interfaces[0]: "a[" is not a pattern: [ needs a ] and a range two ends; put \ before a [ that means itself`},
		{`networks: [{name: a, match: {interfaces: ['a\']}}]`, `line 1: networks[0].match.interfaces[0]: "a\\" is not a pattern: [ needs a ] and a range two ends; put \ before a [ that means itself`},
		{"networks: [{name: a, match: {interfaces: [a b]}}]", `line 1: networks[0].match.interfaces[0]: "a b" has a character that no interface name has (space, slash, colon); remove it`},
		{`networks: [{name: a, match: {interfaces: ["a #b"]}}]`, `line 1: networks[0].match.interfaces[0]: "a #b" has a character that no interface name has (space, slash, colon); remove it`},
		{"networks: [{name: a, match: {interfaces: [a/b]}}]", `line 1: networks[0].match.interfaces[0]: "a/b" has a character that no interface name has (space, slash, colon); remove it`},
		{"networks: [{name: a, match: {interfaces: ['a:b']}}]", `line 1: networks[0].match.interfaces[0]: "a:b" has a character that no interface name has (space, slash, colon); remove it`},
		{`networks: [{name: a, match: {interfaces: ["a\tb"]}}]`, `line 1: networks[0].match.interfaces[0]: "a\tb" has a character that no interface name has (space, slash, colon); remove it`},
		{`networks: [{name: a, match: {interfaces: ["a\u202eb"]}}]`, `line 1: networks[0].match.interfaces[0]: "a\u202eb" has a character that no interface name has (space, slash, colon); remove it`},
		{"networks: [{name: a, match: {interfaces: [abcdefghijklmnop]}}]", `line 1: networks[0].match.interfaces[0]: "abcdefghijklmnop" never matches, interface names have at most 15 characters; shorten it, or end it with *`},
		{"networks: [{name: a, match: {interfaces: [*-x]}}]", "line 1, column 43: * begins a YAML alias, which is not used here; put a name that begins with * in quotes"},
		{"networks: [{name: a, match: {interfaces: [1]}}]", `line 1: networks[0].match.interfaces[0]: "1" is not text; put it in quotes`},
		{"networks: [{name: a, match: {interfaces: [null]}}]", "line 1: networks[0].match.interfaces[0]: has no value; write one"},
		{"networks: [{name: a, match: {interfaces: [ ? x]}}]", "line 1, column 44: ? begins a complex key, which is not used here; write the key and a colon, or put a name that begins with ? in quotes"},
		{"networks: [{name: a, match: {interfaces: [[a]]}}]", "line 1: networks[0].match.interfaces[0]: a list is not text; write one value, in quotes if it has a colon"},
		{"networks:\n  - name: a\n  - name: b\n    match:\n      peers:\n        - net1\n      cidrs: [10.9.0/16]", `line 7: networks[1].match.cidrs[0]: "10.9.0/16" is not a CIDR; write for example 10.9.0.0/16`},
		{"networks: [{name: a, match: {cidrs: []}}]", "line 1: networks[0].match.cidrs: is empty; name at least one, or leave the key out"},
		{"networks: [{name: a, match: {cidrs: 10.9.0.0/16}}]", `line 1: networks[0].match.cidrs: "10.9.0.0/16" is not a list; write one entry per line, each after a -`},
		{"networks: [{name: a, match: {cidrs: [10.9.0.0]}}]", `line 1: networks[0].match.cidrs[0]: "10.9.0.0" is an address, not a CIDR; write 10.9.0.0/32 for it alone`},
		{"networks: [{name: a, match: {cidrs: [10.9.0.1/16]}}]", `line 1: networks[0].match.cidrs[0]: "10.9.0.1/16" has bits set after the prefix; write 10.9.0.0/16 for the whole of it, or 10.9.0.1/32 for the address alone`},
		{"networks: [{name: a, match: {cidrs: [10.9.0.0/33]}}]", `line 1: networks[0].match.cidrs[0]: "10.9.0.0/33" is not a CIDR; write for example 10.9.0.0/16`},
		{`networks: [{name: a, match: {cidrs: ["fd00::1/64"]}}]`, `line 1: networks[0].match.cidrs[0]: "fd00::1/64" has bits set after the prefix; write fd00::/64 for the whole of it, or fd00::1/128 for the address alone`},
		{`networks: [{name: a, match: {cidrs: ["::ffff:10.0.0.0/104"]}}]`, `line 1: networks[0].match.cidrs[0]: "::ffff:10.0.0.0/104" is an IPv4 prefix in IPv6 form; write it as IPv4`},
		{`networks: [{name: a, match: {cidrs: ["fe80::1%eth0"]}}]`, `line 1: networks[0].match.cidrs[0]: "fe80::1%eth0" has a zone; write the address without it`},
		{"networks: [{name: a, match: {cidrs: [10.0]}}]", `line 1: networks[0].match.cidrs[0]: "10.0" is not text; put it in quotes`},
		{"networks: [{name: a, match: {cidrs: [010.0.0.0/8]}}]", `line 1: networks[0].match.cidrs[0]: "010.0.0.0/8" is not a CIDR; write for example 10.9.0.0/16`},
		{"networks: [{name: a, match: {cidrs: [fe80::%eth0/64]}}]", "line 1: networks[0].match.cidrs[0]: a mapping is not text; write one value, in quotes if it has a colon"},
		{`networks: [{name: a, match: {cidrs: [""]}}]`, `line 1: networks[0].match.cidrs[0]: "" is not a CIDR; write for example 10.9.0.0/16`},
		{"shared: [10.0.0/8]", `line 1: shared[0]: "10.0.0/8" is not an address or a CIDR; write for example 10.9.0.1 or 10.9.0.0/16`},
		{"shared: [10.0.0.1/8]", `line 1: shared[0]: "10.0.0.1/8" has bits set after the prefix; write 10.0.0.0/8 for the whole of it, or 10.0.0.1 for the address alone`},
		{`shared: ["fd00::1/8"]`, `line 1: shared[0]: "fd00::1/8" has bits set after the prefix; write fd00::/8 for the whole of it, or fd00::1 for the address alone`},
		{`shared: ["::ffff:10.0.0.1"]`, `line 1: shared[0]: "::ffff:10.0.0.1" is an IPv4 address in IPv6 form; write 10.0.0.1`},
		{`shared: ["fe80::1%e"]`, `line 1: shared[0]: "fe80::1%e" has a zone; write the address without it`},
		{"shared:\n  - ", "line 2: shared[0]: has no value; write one"},
		{"shared:\n  - fd00::", "line 2: shared[0]: a mapping is not text; write one value, in quotes if it has a colon"},
		{"shared:\n  - 10.0.0.1:80", `line 2: shared[0]: "10.0.0.1:80" is not an address or a CIDR; write for example 10.9.0.1 or 10.9.0.0/16`},
		{"networks:\n  - {name: a, scope: node}\n  - {name: a, scope: cluster}", `line 3: networks[1].scope: network "a" has scope node on line 2; give it one scope`},
		{"networks:\n  - {name: a, solicit: on}\n  - {name: a}\n  - {name: a, solicit: off}", `line 4: networks[2].solicit: network "a" is set otherwise on line 2; set it once`},
		{"limits: {bindings: 0}", "line 1: limits.bindings: 0 is out of range; it must be from 1 to 1048576"},
		{"limits: {bindings: -1}", "line 1: limits.bindings: -1 is out of range; it must be from 1 to 1048576"},
		{"limits: {bindings: 1048577}", "line 1: limits.bindings: 1048577 is out of range; it must be from 1 to 1048576"},
		{"limits: {bindings: 1e3}", `line 1: limits.bindings: "1e3" is not a whole number; write one from 1 to 1048576`},
		{"limits: {bindings: 1.5}", `line 1: limits.bindings: "1.5" is not a whole number; write one from 1 to 1048576`},
		{`limits: {bindings: "5"}`, `line 1: limits.bindings: "5" is text; write the number without quotes`},
		{"limits: {bindings: }", "line 1: limits.bindings: has no value; give it one, or leave it out for 65536"},
		{"limits: {bindings: 99999999999999999999}", `line 1: limits.bindings: "99999999999999999999" is not a whole number; write one from 1 to 1048576`},
		{"limits: {bindings: 0x10}", `line 1: limits.bindings: "0x10" is not a whole number; write one from 1 to 1048576`},
		{"limits: {bindings: 1_000}", `line 1: limits.bindings: "1_000" is not a whole number; write one from 1 to 1048576`},
		{"limits: {bindings: many}", `line 1: limits.bindings: "many" is not a whole number; write one from 1 to 1048576`},
		{"limits: {bindings: 100, bindingsPerInterface: 101}", "line 1: limits.bindingsPerInterface: 101 is more than the whole table has (bindings: 100); lower it"},
		{"limits: {bindingsPerInterface: 65537}", "line 1: limits.bindingsPerInterface: 65537 is out of range; it must be from 1 to 65536"},
		{"limits: {history: 10001}", "line 1: limits.history: 10001 is out of range; it must be from 1 to 10000"},
		{"limits: {verifyPerSecond: 10001}", "line 1: limits.verifyPerSecond: 10001 is out of range; it must be from 1 to 10000"},
		{"limits: {refreshPerSecond: 0}", "line 1: limits.refreshPerSecond: 0 is out of range; it must be from 1 to 10000"},
		{"limits: {bindings: [5]}", "line 1: limits.bindings: a list is not a whole number; write one from 1 to 1048576"},
		{"limits: {binding: 5}", `line 1: limits: unknown key "binding"; the keys here are bindings, bindingsPerInterface, history, verifyPerSecond, refreshPerSecond`},
		{"ignore: {interface: [a]}", `line 1: ignore: unknown key "interface"; the keys here are interfaces`},
		{"ignore: {interfaces: a}", `line 1: ignore.interfaces: "a" is not a list; write one entry per line, each after a -`},
		{"shared: []\nshared: []", "line 2: shared: the key is on line 1 already; remove one of the two"},
		{"shared: []\n---\nshared: []", "line 2, column 1: a second YAML document begins here; keep everything in one, without ---"},
		{"shared: []\n...\n", "line 2, column 1: ... ends a YAML document; remove the line"},
		{"%YAML 1.1\n---\nshared: []", "line 1, column 1: % begins a YAML directive, which is not used here; remove the line\nline 2, column 1: a second YAML document begins here; keep everything in one, without ---"},
		{"shared: &x []", "line 1, column 9: & begins a YAML anchor, which is not used here; remove it, or put the value in quotes"},
		{"<<: {a: b}", "line 1, column 1: the merge key << is not used here; write the keys out"},
		{"shared: !!seq []", "line 1, column 9: ! begins a YAML tag, which is not used here; remove it, or put the value in quotes"},
		{"shared: |\n  a", "line 1, column 9: | begins a text block in YAML, and no name has it; write values on one line"},
		{"shared: >-\n  a", "line 1, column 9: > begins a text block in YAML, and no name has it; write values on one line"},
		{"? shared\n: []", "line 1, column 1: ? begins a complex key, which is not used here; write the key and a colon, or put a name that begins with ? in quotes"},
		{"shared: [", "line 1, column 9: not valid YAML: sequence end token ']' not found; check indentation, colons, quotes and brackets"},
		{"shared: [a]]", "line 1, column 12: not valid YAML: value is not allowed in this context; check indentation, colons, quotes and brackets"},
		{"\tshared: []", "line 1, column 1: a tab is at the beginning of the line; YAML wants spaces"},
		{"shared:\n  \t- 10.0.0.1", "line 2, column 3: a tab is at the beginning of the line; YAML wants spaces"},
		{"shared: 'a", "line 1, column 9: not valid YAML: could not find end character of single-quoted text; check indentation, colons, quotes and brackets"},
		{"a: b: c", "line 1, column 4: not valid YAML: mapping value is not allowed in this context; check indentation, colons, quotes and brackets"},
		{`shared: "a\q"`, "line 1, column 12: not valid YAML: found unknown escape character 'q'; check indentation, colons, quotes and brackets"},
		{"shared:\n  - 10.0.0.1\n - 10.0.0.2", "line 3, column 2: a line that begins with - cannot stand here; end the one above with a colon, or indent this one like the entries before it"},
		{"shared: x\n  - 10.0.0.1", "line 2, column 3: a line that begins with - cannot stand here; end the one above with a colon, or indent this one like the entries before it"},
		{"shared:\n  - 10.0.0.1\n    - 10.0.0.2", "line 3, column 5: a line that begins with - cannot stand here; end the one above with a colon, or indent this one like the entries before it"},
		{"shared: [- 10.0.0.1]", "line 1, column 10: a list in brackets has no -; write its entries with commas in between"},
		{"shared: [@a]", "line 1, column 10: not valid YAML: '@' is a reserved character; check indentation, colons, quotes and brackets"},
		{"shared: \x00", `line 1, column 9: there is a byte that is no text (\x00); is it the right file?`},
		{"shared: []\r# \x1b[31m", `line 1, column 11: there is a byte that is no text (\r); is it the right file?`},
		{"ä: \xff", `line 1, column 4: there is a byte that is no text (\xff); is it the right file?`},
		{"shared: [10.0.0.1\nlimits: {}", "line 2, column 1: not valid YAML: ',' or ']' must be specified; check indentation, colons, quotes and brackets"},
		{"limits:\n  history: 5\n bindings: 5", "line 3, column 2: not valid YAML: value is not allowed in this context; check indentation, colons, quotes and brackets"},
		{"limits:\n  history 5", `line 2: limits: "history 5" is not a mapping; write keys and values, of the keys bindings, bindingsPerInterface, history, verifyPerSecond, refreshPerSecond`},
	} {
		c, err := Parse([]byte(test.text))
		if err == nil || err.Error() != test.want {
			t.Errorf("%q\n got %v\nwant %s", test.text, err, test.want)
		}
		if c != nil {
			t.Errorf("%q: a configuration in spite of it", test.text)
		}
	}
}

// What is too much is told without an echo of it.
func TestTooMuch(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"name": {
			"networks:\n  - name: " + strings.Repeat("a", 200),
			`line 2: networks[0].name: "` + strings.Repeat("a", 64) + `…" is longer than 63 characters; shorten it`,
		},
		"pattern": {
			"ignore: {interfaces: [" + strings.Repeat("ä?", 70) + "]}",
			`line 1: ignore.interfaces[0]: "` + strings.Repeat("ä?", 21) + `…" is longer than 128 characters; shorten it`,
		},
		"shared":    {"shared: [" + strings.Repeat("10.0.0.1,", 1025) + "]", "line 1: shared: has 1025 entries; at most 1024 are allowed"},
		"networks":  {"networks: [" + strings.Repeat("{name: a},", 257) + "]", "line 1: networks: has 257 entries; at most 256 are allowed"},
		"ignored":   {"ignore: {interfaces: [" + strings.Repeat("a,", 257) + "]}", "line 1: ignore.interfaces: has 257 entries; at most 256 are allowed"},
		"peers":     {"networks: [{name: a, match: {peers: [" + strings.Repeat("a,", 65) + "]}}]", "line 1: networks[0].match.peers: has 65 entries; at most 64 are allowed"},
		"brackets":  {"shared: " + strings.Repeat("[", 17), "line 1, column 25: brackets are nested more than 16 deep"},
		"dashes":    {strings.Repeat("- ", 100) + "- a", "line 1, column 201: indented by more than 200 columns"},
		"indented":  {strings.Repeat(" ", 201) + "a: b", "line 1, column 203: indented by more than 200 columns"},
		"keys":      {strings.Repeat("limits:\n", 4097), "line 4097, column 7: there are more than 4096 keys; is it the right file?"},
		"entries":   {strings.Repeat("-\n", 8193), "line 8193, column 1: there are more than 8192 list entries; is it the right file?"},
		"content":   {"# x\nshared: [" + strings.Repeat("1", 64<<10), "line 2, column 1: there are more than 65536 bytes, not counting comments; is it the right file?"},
		"size":      {strings.Repeat("#", 1<<20+1), "the file is larger than 1048576 bytes; is it the right one?"},
		"documents": {"---\nshared: []\n---\n---\n", "line 3, column 1: a second YAML document begins here; keep everything in one, without ---\nline 4, column 1: a second YAML document begins here; keep everything in one, without ---"},
	} {
		if _, err := Parse([]byte(test.text)); err == nil || err.Error() != test.want {
			t.Errorf("%s\n got %.300v\nwant %s", name, err, test.want)
		}
	}
}

// All mistakes are told in one go, in the order of the file, but no more than ten.
func TestManyMistakes(t *testing.T) {
	_, err := Parse([]byte("limits: {history: 0}\nshared: [x]\nnetworks: [{}]\n"))
	want := "line 1: limits.history: 0 is out of range; it must be from 1 to 10000\n" +
		"line 2: shared[0]: \"x\" is not an address or a CIDR; write for example 10.9.0.1 or 10.9.0.0/16\n" +
		"line 3: networks[0]: has no name; add one, as in name: storage"
	if err == nil || err.Error() != want {
		t.Errorf(" got %v\nwant %s", err, want)
	}
	for n, last := range map[int]string{10: "line 10", 11: "and 1 more problem", 12: "and 2 more problems"} {
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, "key%d: 1\n", i)
		}
		_, err := Parse([]byte(text.String()))
		lines := strings.Split(err.Error(), "\n")
		if len(lines) != min(n, 11) || !strings.HasPrefix(lines[len(lines)-1], last) {
			t.Errorf("%d mistakes:\n%v", n, err)
		}
		first, ok := errors.AsType[*Problem](err)
		if !ok || first.Line != 1 || first.Column != 1 {
			t.Errorf("%+v, %t", first, ok)
		}
	}
}

// What looks like a mistake and is none.
func TestNoMistakes(t *testing.T) {
	const comments = "shared: # a > b | c, don't\n\n    # - x\n  - 10.0.0.1 # 'x\n# |\n  - '10.0.0.2' # > it's\n"
	const hashes = `ignore: {interfaces: ["a#b", 'c#d*', e#f]} # g`
	for name, text := range map[string]string{
		"byte order mark and CRLF":       "\ufeffshared:\r\n  - 10.0.0.1\r\n",
		"a list at the key's column":     "shared:\n- 10.0.0.1\n- 10.0.0.2\n",
		"comments":                       comments,
		"hashes":                         hashes,
		"brackets over many lines":       "shared: [\n  10.0.0.1,\n    10.0.0.2 ]\n",
		"a mapping in a list":            "networks:\n  - name: a\n    match:\n      peers:\n      - x\n      - y\n    scope: node\n  -\n    name: b\n  - {\"name\": c,\n     'solicit': on}\n",
		"JSON":                           `{"networks": [{"name": "a", "match": {"cidrs": ["10.0.0.0/8", "::/0"]}}], "shared": ["::1"], "limits": {"history": 7}}`,
		"a document marker":              "# x\n---\nshared: []\n",
		"IPv6 without quotes":            "shared:\n  - fd00::/8\n  - ::1\n",
		"properties said twice":          "networks: [{name: a, scope: node, solicit: off}, {name: a, scope: node, solicit: 'False'}]",
		"sections without values":        "networks:\nshared: ~\nignore: null\nlimits: {}\n",
		"patterns with specials":         `ignore: {interfaces: ['[!a]?', '\[x', "veth@*"]}`,
		"the longest name of a network":  "networks: [{name: " + strings.Repeat("a", 63) + "}]",
		"the longest name of a device":   "ignore: {interfaces: [abcdefghijklmno]}",
		"keys in quotes":                 "\"shared\": []\n'limits': {}\n",
		"a table below the usual share":  "limits: {bindings: 100}",
		"a class longer than any device": "ignore: {interfaces: ['[a-z][a-z][a-z][0-9]']}",
	} {
		if _, err := Parse([]byte(text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := mustParse(t, comments)
	if !c.Shared(ip("10.0.0.1")) || !c.Shared(ip("10.0.0.2")) || c.Shared(ip("10.0.0.3")) {
		t.Errorf("%v", c.shared)
	}
	c = mustParse(t, hashes)
	if !c.Ignored("a#b") || !c.Ignored("c#d1") || !c.Ignored("e#f") {
		t.Errorf("%v", c.ignored)
	}
}
