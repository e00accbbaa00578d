package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What the errors end with.
const (
	notName    = " is not a name; use 1 to 63 letters, digits and @ . _ -"
	notPattern = " is not a pattern of interface names; use 1 to 128 characters without space, slash and colon, such as cali*"
	badPattern = ` is not a pattern: [ needs a ] and a range two ends; put \ before a [ that means itself`
	notCIDR    = " is not a CIDR; write for example 10.9.0.0/16, or 10.9.0.1/32 for one address; no zone, no IPv4 in IPv6 form"
	notList    = " is not a list; write one entry per line, each after a -"
	notText    = " is not text; write one value, in quotes if it has a colon"
	syntax     = "; check indentation, colons and brackets, and put text with special characters in quotes"
	special    = "YAML anchors (&), aliases (*) and tags (!) are not supported; write the value out, or put it in quotes"
	fileKeys   = "the keys here are networks, shared, exclusive, segments, ignore, limits"
	matchKeys  = "the keys here are interfaces, peers, bridges, cidrs"
	limitKeys  = "the keys here are bindings, bindingsPerInterface, history, verifyPerSecond, refreshPerSecond"
)

var mistakes = []struct{ text, want string }{
	{"network: []", `line 1: unknown key "network"; ` + fileKeys},
	{"networks: 5", "line 1: networks: `5`" + notList},
	{"networks: {a: b}", "line 1: networks: a mapping" + notList},
	{"shared: 10.0.0.1", "line 1: shared: `10.0.0.1`" + notList},
	{"a", "line 1: `a` is not a mapping; " + fileKeys},
	{"- a", "line 1: a list is not a mapping; " + fileKeys},
	{"5", "line 1: `5` is not a mapping; " + fileKeys},
	{"[]", "line 1: a list is not a mapping; " + fileKeys},
	{"limits: []", "line 1: limits: a list is not a mapping; " + limitKeys},
	{"ignore: [a]", "line 1: ignore: a list is not a mapping; the keys here are interfaces"},
	{"1: 2", "line 1: a key is not plain text; write a name and a colon"},
	{"null: 2", "line 1: a key is not plain text; write a name and a colon"},
	{"[a]: b", "line 1: a key is not plain text; write a name and a colon"},
	{"networks:\n  -", "line 2: networks[0]: no value is not a mapping; the keys here are name, scope, solicit, match"},
	{"networks:\n  - storage", "line 2: networks[0]: `storage` is not a mapping; the keys here are name, scope, solicit, match"},
	{"networks:\n  - {}", "line 2: networks[0]: has no name; add one, as in name: storage"},
	{"networks:\n  - scope: node", "line 2: networks[0]: has no name; add one, as in name: storage"},
	{"networks:\n  - name:", `line 2: networks[0].name: ""` + notName},
	{"networks:\n  - name: 7", `line 2: networks[0].name: "7" is not text; put it in quotes`},
	{"networks:\n  - name: true", `line 2: networks[0].name: "true" is not text; put it in quotes`},
	{"networks:\n  - name: [a]", "line 2: networks[0].name: a list" + notText},
	{"networks:\n  - name: \"\"", `line 2: networks[0].name: ""` + notName},
	{"networks:\n  - name: a/b", `line 2: networks[0].name: "a/b"` + notName},
	{"networks:\n  - name: \"a\\e[31mb\\n\"", `line 2: networks[0].name: "a\x1b[31mb\n"` + notName},
	{"networks:\n  - name: ä", `line 2: networks[0].name: "ä"` + notName},
	{"networks:\n  - name: default.100", `line 2: networks[0].name: "default.100" ends as the name of a VLAN does; a VLAN belongs to its network, so write "default"`},
	{"networks:\n  - name: a.b.1", `line 2: networks[0].name: "a.b.1" ends as the name of a VLAN does; a VLAN belongs to its network, so write "a.b"`},
	{"networks:\n  - name: a\n      b", `line 2: networks[0].name: "a b"` + notName},
	{"networks:\n  - name: a\n    scope: nodes", `line 3: networks[0].scope: "nodes" is not a scope; write cluster or node`},
	{"networks:\n  - name: a\n    scope:", `line 3: networks[0].scope: "" is not a scope; write cluster or node`},
	{"networks:\n  - name: a\n    scope: Node", `line 3: networks[0].scope: "Node" is not a scope; write cluster or node`},
	{"networks:\n  - name: a\n    solicit: no", `line 3: networks[0].solicit: "no" is not a switch; write on or off`},
	{"networks:\n  - name: a\n    solicit:", `line 3: networks[0].solicit: "" is not a switch; write on or off`},
	{"networks:\n  - name: a\n    solicit: 0", `line 3: networks[0].solicit: "0" is not a switch; write on or off`},
	{"networks:\n  - name: a\n    solicit: [off]", "line 3: networks[0].solicit: a list" + notText},
	{"networks:\n  - name: a\n    solicitt: off", `line 3: networks[0]: unknown key "solicitt"; the keys here are name, scope, solicit, match`},
	{"networks:\n  - name: a\n    name: b", `line 3: networks[0]: mapping key "name" already defined at line 2; remove one of the two`},
	{"networks:\n  - name: a\n    scope: node\n    \"scope\": node", `line 4: networks[0]: mapping key "scope" already defined at line 3; remove one of the two`},
	{"networks:\n  - name: a\n    match:", "line 3: networks[0].match: no value is not a mapping; " + matchKeys},
	{"networks:\n  - name: a\n    match: {}", "line 3: networks[0].match: is empty; name at least one, or leave the key out"},
	{"networks:\n  - name: a\n    match: []", "line 3: networks[0].match: is empty; name at least one, or leave the key out"},
	{"networks:\n  - name: a\n    match: a", "line 3: networks[0].match: `a` is not a mapping; " + matchKeys},
	{"networks: [{name: a, match: {interface: [a]}}]", `line 1: networks[0].match: unknown key "interface"; ` + matchKeys},
	{"networks: [{name: a, match: {interfaces: a}}]", "line 1: networks[0].match.interfaces: `a`" + notList},
	{"networks: [{name: a, match: {interfaces: []}}]", "line 1: networks[0].match.interfaces: is empty; name at least one, or leave the key out"},
	{"networks: [{name: a, match: {peers: }}]", "line 1: networks[0].match.peers: no value" + notList},
	{`networks: [{name: a, match: {bridges: [""]}}]`, `line 1: networks[0].match.bridges[0]: ""` + notPattern},
	{`networks: [{name: a, match: {interfaces: ["a["]}}]`, `line 1: networks[0].match.interfaces[0]: "a["` + badPattern},
	{`networks: [{name: a, match: {interfaces: ['a\']}}]`, `line 1: networks[0].match.interfaces[0]: "a\\"` + badPattern},
	{"networks: [{name: a, match: {interfaces: [a b]}}]", `line 1: networks[0].match.interfaces[0]: "a b"` + notPattern},
	{`networks: [{name: a, match: {interfaces: ["a #b"]}}]`, `line 1: networks[0].match.interfaces[0]: "a #b"` + notPattern},
	{"networks: [{name: a, match: {interfaces: [a/b]}}]", `line 1: networks[0].match.interfaces[0]: "a/b"` + notPattern},
	{"networks: [{name: a, match: {interfaces: ['a:b']}}]", `line 1: networks[0].match.interfaces[0]: "a:b"` + notPattern},
	{`networks: [{name: a, match: {interfaces: ["a\tb"]}}]`, `line 1: networks[0].match.interfaces[0]: "a\tb"` + notPattern},
	{`networks: [{name: a, match: {interfaces: ["a\u202eb"]}}]`, `line 1: networks[0].match.interfaces[0]: "a\u202eb"` + notPattern},
	{"networks: [{name: a, match: {interfaces: [abcdefghijklmnop]}}]", `line 1: networks[0].match.interfaces[0]: "abcdefghijklmnop" never matches, interface names have at most 15 characters; shorten it, or end it with *`},
	{"networks: [{name: a, match: {interfaces: [*-x]}}]", "line 1: not valid YAML: unknown anchor '-x' referenced" + syntax},
	{"networks: [{name: a, match: {interfaces: [1]}}]", `line 1: networks[0].match.interfaces[0]: "1" is not text; put it in quotes`},
	{"networks: [{name: a, match: {interfaces: [null]}}]", `line 1: networks[0].match.interfaces[0]: ""` + notPattern},
	{"networks: [{name: a, match: {interfaces: [ ? x]}}]", "line 1: networks[0].match.interfaces[0]: a mapping" + notText},
	{"networks: [{name: a, match: {interfaces: [[a]]}}]", "line 1: networks[0].match.interfaces[0]: a list" + notText},
	{"networks:\n  - name: a\n  - name: b\n    match:\n      peers:\n        - net1\n      cidrs: [10.9.0/16]", `line 7: networks[1].match.cidrs[0]: "10.9.0/16"` + notCIDR},
	{"networks: [{name: a, match: {cidrs: []}}]", "line 1: networks[0].match.cidrs: is empty; name at least one, or leave the key out"},
	{"networks: [{name: a, match: {cidrs: 10.9.0.0/16}}]", "line 1: networks[0].match.cidrs: `10.9.0....`" + notList},
	{"networks: [{name: a, match: {cidrs: [10.9.0.0]}}]", `line 1: networks[0].match.cidrs[0]: "10.9.0.0"` + notCIDR},
	{"networks: [{name: a, match: {cidrs: [10.9.0.1/16]}}]", `line 1: networks[0].match.cidrs[0]: "10.9.0.1/16" has bits set after the prefix; write 10.9.0.0/16 for the whole of it, or 10.9.0.1/32 for the address alone`},
	{"networks: [{name: a, match: {cidrs: [10.9.0.0/33]}}]", `line 1: networks[0].match.cidrs[0]: "10.9.0.0/33"` + notCIDR},
	{`networks: [{name: a, match: {cidrs: ["fd00::1/64"]}}]`, `line 1: networks[0].match.cidrs[0]: "fd00::1/64" has bits set after the prefix; write fd00::/64 for the whole of it, or fd00::1/128 for the address alone`},
	{`networks: [{name: a, match: {cidrs: ["::ffff:10.0.0.0/104"]}}]`, `line 1: networks[0].match.cidrs[0]: "::ffff:10.0.0.0/104"` + notCIDR},
	{`networks: [{name: a, match: {cidrs: ["fe80::1%eth0"]}}]`, `line 1: networks[0].match.cidrs[0]: "fe80::1%eth0"` + notCIDR},
	{"networks: [{name: a, match: {cidrs: [10.0]}}]", `line 1: networks[0].match.cidrs[0]: "10.0" is not text; put it in quotes`},
	{"networks: [{name: a, match: {cidrs: [010.0.0.0/8]}}]", `line 1: networks[0].match.cidrs[0]: "010.0.0.0/8"` + notCIDR},
	{"networks: [{name: a, match: {cidrs: [fe80::%eth0/64]}}]", `line 1: networks[0].match.cidrs[0]: "fe80::%eth0/64"` + notCIDR},
	{`networks: [{name: a, match: {cidrs: [""]}}]`, `line 1: networks[0].match.cidrs[0]: ""` + notCIDR},
	{"shared: [10.0.0/8]", `line 1: shared[0]: "10.0.0/8"` + notCIDR},
	{"shared: [10.0.0.1/8]", `line 1: shared[0]: "10.0.0.1/8" has bits set after the prefix; write 10.0.0.0/8 for the whole of it, or 10.0.0.1/32 for the address alone`},
	{`shared: ["fd00::1/8"]`, `line 1: shared[0]: "fd00::1/8" has bits set after the prefix; write fd00::/8 for the whole of it, or fd00::1/128 for the address alone`},
	{`shared: ["::ffff:10.0.0.1"]`, `line 1: shared[0]: "::ffff:10.0.0.1"` + notCIDR},
	{`shared: ["fe80::1%e"]`, `line 1: shared[0]: "fe80::1%e"` + notCIDR},
	{"shared:\n  - ", `line 2: shared[0]: ""` + notCIDR},
	{"shared:\n  - fd00::", "line 2: shared[0]: a mapping" + notText},
	{"shared:\n  - 10.0.0.1:80", `line 2: shared[0]: "10.0.0.1:80"` + notCIDR},
	{"networks:\n  - {name: a, scope: node}\n  - {name: a, scope: cluster}", "line 3: networks[1].scope: cluster contradicts node in an earlier entry for this network; keep one of the two"},
	{"networks:\n  - {name: a, solicit: on}\n  - {name: a}\n  - {name: a, solicit: off}", "line 4: networks[2].solicit: off contradicts on in an earlier entry for this network; keep one of the two"},
	{"limits: {bindings: 0}", `line 1: limits.bindings: "0" cannot be used; write a whole number from 1 to 1048576, without quotes`},
	{"limits: {bindings: -1}", `line 1: limits.bindings: "-1" cannot be used; write a whole number from 1 to 1048576, without quotes`},
	{"limits: {bindings: 1048577}", `line 1: limits.bindings: "1048577" cannot be used; write a whole number from 1 to 1048576, without quotes`},
	{"limits: {bindings: 1e3}", `line 1: limits.bindings: "1e3" cannot be used; write a whole number from 1 to 1048576, without quotes`},
	{"limits: {bindings: 1.5}", `line 1: limits.bindings: "1.5" cannot be used; write a whole number from 1 to 1048576, without quotes`},
	{`limits: {bindings: "5"}`, `line 1: limits.bindings: "5" cannot be used; write a whole number from 1 to 1048576, without quotes`},
	{"limits: {bindings: }", `line 1: limits.bindings: "" cannot be used; write a whole number from 1 to 1048576, without quotes`},
	{"limits: {bindings: 99999999999999999999}", `line 1: limits.bindings: "99999999999999999999" cannot be used; write a whole number from 1 to 1048576, without quotes`},
	{"limits: {bindings: 0x10}", `line 1: limits.bindings: "0x10" cannot be used; write a whole number from 1 to 1048576, without quotes`},
	{"limits: {bindings: 1_000}", `line 1: limits.bindings: "1_000" cannot be used; write a whole number from 1 to 1048576, without quotes`},
	{"limits: {bindings: many}", `line 1: limits.bindings: "many" cannot be used; write a whole number from 1 to 1048576, without quotes`},
	{"limits: {bindings: 100, bindingsPerInterface: 101}", "line 1: limits.bindingsPerInterface: is 101, more than all bindings (100); lower it"},
	{"limits: {bindingsPerInterface: 65537}", `line 1: limits.bindingsPerInterface: "65537" cannot be used; write a whole number from 1 to 65536, without quotes`},
	{"limits: {history: 10001}", `line 1: limits.history: "10001" cannot be used; write a whole number from 1 to 10000, without quotes`},
	{"limits: {verifyPerSecond: 10001}", `line 1: limits.verifyPerSecond: "10001" cannot be used; write a whole number from 1 to 10000, without quotes`},
	{"limits: {refreshPerSecond: 0}", `line 1: limits.refreshPerSecond: "0" cannot be used; write a whole number from 1 to 10000, without quotes`},
	{"limits: {bindings: [5]}", `line 1: limits.bindings: "" cannot be used; write a whole number from 1 to 1048576, without quotes`},
	{"limits: {binding: 5}", `line 1: limits: unknown key "binding"; ` + limitKeys},
	{"ignore: {interface: [a]}", `line 1: ignore: unknown key "interface"; the keys here are interfaces`},
	{"ignore: {interfaces: a}", "line 1: ignore.interfaces: `a`" + notList},
	{"shared: []\nshared: []", `line 2: mapping key "shared" already defined at line 1; remove one of the two`},
	{"shared: []\n---\nshared: []", "line 2: a second YAML document begins here; keep everything in one, without ---"},
	{"shared: &x []", "line 1: shared: " + special},
	{"<<: {a: b}", "line 1: a key is not plain text; write a name and a colon"},
	{"shared: !!seq []", "line 1: shared: " + special},
	{"shared: |\n  a", "line 1: shared: `a?`" + notList},
	{"shared: >-\n  a", "line 1: shared: `a`" + notList},
	{"shared: [", "line 2: not valid YAML: did not find expected node content" + syntax},
	{"shared: [a]]", "line 1: not valid YAML: did not find expected key" + syntax},
	{"\tshared: []", "line 1: not valid YAML: found character that cannot start any token" + syntax},
	{"shared:\n  \t- 10.0.0.1", "line 2: not valid YAML: found a tab character where an indentation space is expected" + syntax},
	{"shared: 'a", "line 2: not valid YAML: found unexpected end of stream while scanning a quoted scalar that begins on line 1" + syntax},
	{"a: b: c", "line 1: not valid YAML: mapping values are not allowed in this context" + syntax},
	{`shared: "a\q"`, "line 1: not valid YAML: found unknown escape character" + syntax},
	{"shared:\n  - 10.0.0.1\n - 10.0.0.2", "line 3: not valid YAML: did not find expected key while parsing a block mapping that begins on line 1" + syntax},
	{"shared: x\n  - 10.0.0.1", "line 1: shared: `x - 10....`" + notList},
	{"shared:\n  - 10.0.0.1\n    - 10.0.0.2", `line 2: shared[0]: "10.0.0.1 - 10.0.0.2"` + notCIDR},
	{"shared: [- 10.0.0.1]", "line 1: not valid YAML: did not find expected node content" + syntax},
	{"shared: [@a]", "line 1: not valid YAML: found character that cannot start any token" + syntax},
	{"shared: \x00", "line 1: there is a byte that is not text; is it the right file?"},
	{"# a comment\rshared: [10.0.0.1]\n", "line 1: there is a byte that is not text; is it the right file?"},
	{"shared: []\r# \x1b[31m", "line 1: there is a byte that is not text; is it the right file?"},
	{"ä: \xff", "line 1: there is a byte that is not text; is it the right file?"},
	{"shared: [10.0.0.1\nlimits: {}", "line 2: not valid YAML: did not find expected ',' or ']' while parsing a flow sequence that begins on line 1" + syntax},
	{"limits:\n  history: 5\n bindings: 5", "line 3: not valid YAML: did not find expected key while parsing a block mapping that begins on line 1" + syntax},
	{"limits:\n  history 5", "line 2: limits: `history 5` is not a mapping; " + limitKeys},
}

// Every mistake has one line that says what to do.
func TestMistakes(t *testing.T) {
	for _, test := range mistakes {
		c, err := Parse([]byte(test.text))
		if diff := cmp.Diff(test.want, fmt.Sprint(err)); diff != "" || c != nil {
			t.Errorf("%q: %v (-want +got):\n%s", test.text, c, diff)
		}
	}
}

// Errors about long values shorten them.
func TestTooMuch(t *testing.T) {
	as := strings.Repeat("a", 200)
	for name, test := range map[string]struct{ text, want string }{
		"name":     {"networks:\n  - name: " + as, `line 2: networks[0].name: "` + as[:64] + `"` + notName},
		"pattern":  {"ignore: {interfaces: [" + strings.Repeat("ä?", 70) + "]}", `line 1: ignore.interfaces[0]: "` + strings.Repeat("ä?", 32) + `"` + notPattern},
		"key":      {as + ": 1", `line 1: unknown key "` + as[:64] + `"; ` + fileKeys},
		"shared":   {"shared: [" + strings.Repeat("10.0.0.1,", 1025) + "]", "line 1: shared: has 1025 entries; at most 1024 are allowed"},
		"networks": {"networks: [" + strings.Repeat("{name: a},", 257) + "]", "line 1: networks: has 257 entries; at most 256 are allowed"},
		"ignored":  {"ignore: {interfaces: [" + strings.Repeat("a,", 257) + "]}", "line 1: ignore.interfaces: has 257 entries; at most 256 are allowed"},
		"peers":    {"networks: [{name: a, match: {peers: [" + strings.Repeat("a,", 65) + "]}}]", "line 1: networks[0].match.peers: has 65 entries; at most 64 are allowed"},
		"cidrs":    {"networks: [{name: a, match: {cidrs: [" + strings.Repeat("\"::/0\",", 65) + "]}}]", "line 1: networks[0].match.cidrs: has 65 entries; at most 64 are allowed"},
		"brackets": {"shared: " + strings.Repeat("[", 17), "line 1: not valid YAML: exceeded max depth of 16" + syntax},
		"dashes":   {strings.Repeat("- ", 17) + "a", "line 1: not valid YAML: exceeded max depth of 16" + syntax},
		"keys":     {strings.Repeat("limits:\n", 17), "line 1: has 17 keys; at most 16 are allowed; is it the right file?"},
		"entries":  {strings.Repeat("-\n", 65), "line 1: has 65 entries; at most 64 are allowed"},
		"size":     {strings.Repeat("#", 64<<10+1), "line 1: there are more than 65536 bytes; is it the right file?"},
	} {
		_, err := Parse([]byte(test.text))
		if diff := cmp.Diff(test.want, fmt.Sprint(err)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// An error names all mistakes in the order of the file, but no more than ten. Values are
// checked against each other once each of them is valid.
func TestManyMistakes(t *testing.T) {
	many := func(n int) (text, want string) {
		for i := range n {
			text += fmt.Sprintf("key%d: 1\n", i)
			if i < 10 {
				want += fmt.Sprintf("line %d: unknown key \"key%d\"; %s\n", i+1, i, fileKeys)
			}
		}
		if n > 10 {
			want += "and more\n"
		}
		return text, strings.TrimSuffix(want, "\n")
	}
	ten, wantTen := many(10)
	twelve, wantTwelve := many(12)
	for _, test := range []struct{ text, want string }{
		{"shared: [x]\nnetworks: [{name: a, scope: 5, solicit: x}]\nignore: {x: 5}\n", `line 1: shared[0]: "x"` + notCIDR +
			"\nline 2: networks[0].scope: \"5\" is not a scope; write cluster or node\nline 2: networks[0].solicit: \"x\" is not a switch; write on or off" +
			"\nline 3: ignore: unknown key \"x\"; the keys here are interfaces"},
		{"limits: {history: 0}\nshared: [7]\nx: &a b\n", `line 1: limits.history: "0" cannot be used; write a whole number from 1 to 10000, without quotes` +
			"\nline 2: shared[0]: \"7\" is not text; put it in quotes\nline 3: x: " + special + "\nline 3: unknown key \"x\"; " + fileKeys},
		{"networks:\n- scope: node\n- name: a\n- {}\nlimits: {bindings: 1, bindingsPerInterface: 2}\n", "line 2: networks[0]: has no name; add one, as in name: storage" +
			"\nline 4: networks[2]: has no name; add one, as in name: storage\nline 5: limits.bindingsPerInterface: is 2, more than all bindings (1); lower it"},
		{ten, wantTen},
		{twelve, wantTwelve},
	} {
		_, err := Parse([]byte(test.text))
		if diff := cmp.Diff(test.want, fmt.Sprint(err)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", test.text, diff)
		}
	}
}

// Valid files that look wrong.
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
		"the end of a document":          "shared: []\n...\n",
		"a directive":                    "%YAML 1.1\n---\nshared: []",
		"a question mark for a key":      "? shared\n: []",
		"a text block":                   "networks:\n  - name: |-\n      a\n",
		"a name like a date":             "networks: [{name: 2026-11-21}]",
		"special characters in quotes":   `ignore: {interfaces: ["*", '&a', "!x", 'a|b', ">"]}`,
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
