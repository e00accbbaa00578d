package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"path"
	"regexp"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// file is the configuration file as it is decoded. Keys are field names in lower case.
type (
	file struct {
		Networks          []entry
		Shared, Exclusive []addressOrCIDR
		Segments          segments
		Ignore            ignore
		Limits            Limits
	}
	entry struct {
		Name    name
		Scope   Scope
		Solicit onOff
		Match   *match
	}
	// match selects addresses. Every list that is not empty must have an entry that matches.
	match struct {
		Interfaces, Peers, Bridges []pattern
		CIDRs                      []cidr
	}
	segments      struct{ Ask, Infer onOff }
	ignore        struct{ Interfaces []pattern }
	name          string
	onOff         string // "on", "off", or empty if it is not given
	pattern       string // in the syntax of path.Match
	cidr          struct{ netip.Prefix }
	addressOrCIDR struct{ cidr }
)

var (
	none          Config // for nil pointers
	defaultLimits = Limits{Bindings: 65_536, BindingsPerInterface: 256, History: 1_000, VerifyPerSecond: 1_000, RefreshPerSecond: 100}
	validName     = regexp.MustCompile(`^[A-Za-z0-9@._-]{1,63}$`) // names become labels of metrics
	// validPattern leaves the length to code: as a part of the expression it would take most of the time in which any command starts.
	validPattern = regexp.MustCompile(`^[^\s/:\pC\pZ]+$`)
)

// Parse reads the text of a configuration file: one YAML document or nothing. It refuses unknown keys.
// The error has one printable line for each of at most ten problems.
func Parse(data []byte) (*Config, error) {
	f := file{Limits: defaultLimits}
	d := decoder{paths: make(map[yaml.Mark]string), lines: make(map[string]int)}
	d.decode(data, &f)
	c := &Config{byName: make(map[string]Network), shared: f.Shared, exclusive: f.Exclusive, segments: f.Segments, ignored: f.Ignore.Interfaces, limits: f.Limits}
	if len(d.problems) == 0 {
		d.networks(c, f.Networks)
	}
	if line := d.lines["limits.bindingsPerInterface"]; line > 0 && c.limits.BindingsPerInterface > c.limits.Bindings {
		d.fail(line, "limits.bindingsPerInterface", "is %d, more than all bindings (%d); lower it", c.limits.BindingsPerInterface, c.limits.Bindings)
	}
	if err := d.err(); err != nil {
		return nil, err
	}
	return c, nil
}

// networks adds the rules and the networks. Entries of one name make one network.
func (d *decoder) networks(c *Config, entries []entry) {
	first := make(map[name]*entry) // properties of the others are merged into it
	for i := range entries {
		e, path := &entries[i], fmt.Sprintf("networks[%d]", i)
		if e.Name == "" {
			d.fail(d.lines[path], path, "has no name; add one, as in name: storage")
		}
		network := cmp.Or(first[e.Name], e)
		first[e.Name] = network
		merge(d, path+".scope", &network.Scope, e.Scope)
		merge(d, path+".solicit", &network.Solicit, e.Solicit)
		if e.Match != nil {
			c.rules = append(c.rules, *e)
			network.Match = e.Match // any one, for the default scope below
		}
	}
	for i, e := range entries {
		if first[e.Name] != &entries[i] {
			continue
		}
		n := Network{Name: string(e.Name), Scope: cmp.Or(e.Scope, none.Scope(string(e.Name))), Solicit: e.Solicit != "off"}
		if e.Scope == "" && e.Match != nil {
			n.Scope = Cluster
		}
		c.networks = append(c.networks, n)
		c.byName[n.Name] = n
	}
}

// merge sets a property of a network if an entry has it.
func merge[T ~string](d *decoder, path string, network *T, property T) {
	if *network != "" && property != "" && property != *network {
		d.fail(d.lines[path], path, "%s contradicts %s in an earlier entry for this network; keep one of the two", property, *network)
	} else if property != "" {
		*network = property
	}
}

func (v *name) UnmarshalText(text []byte) error {
	*v = name(text)
	if !validName.Match(text) {
		return fmt.Errorf("%.64q is not a name; use 1 to 63 letters, digits and @ . _ -", text)
	}
	if base := stripVLAN(string(text)); base != string(text) {
		return fmt.Errorf("%q ends as the name of a VLAN does; a VLAN belongs to its network, so write %q", text, base)
	}
	return nil
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *Scope) UnmarshalText(text []byte) error {
	if *s = Scope(text); *s != Cluster && *s != Node {
		return fmt.Errorf("%.64q is not a scope; write cluster or node", text)
	}
	return nil
}

func (v *onOff) UnmarshalText(text []byte) error {
	// Helm reads YAML 1.1, in which on and off are booleans.
	if *v = map[string]onOff{"on": "on", "true": "on", "off": "off", "false": "off"}[strings.ToLower(string(text))]; *v == "" {
		return fmt.Errorf("%.64q is not a switch; write on or off", text)
	}
	return nil
}

func (v *pattern) UnmarshalText(text []byte) error {
	*v = pattern(text)
	const (
		longest        = 15 // IFNAMSIZ of the kernel's if.h without the closing NUL
		longestPattern = 128
	)
	switch _, err := path.Match(string(text), ""); {
	case !validPattern.Match(text) || utf8.RuneCount(text) > longestPattern:
		return fmt.Errorf("%.64q is not a pattern of interface names; use 1 to %d characters without space, slash and colon, such as cali*", text, longestPattern)
	case err != nil:
		return fmt.Errorf("%.64q is not a pattern: [ needs a ] and a range two ends; put \\ before a [ that means itself", text)
	case len(text) > longest && !strings.ContainsAny(string(text), `*?[\`):
		return fmt.Errorf("%.64q never matches, interface names have at most %d characters; shorten it, or end it with *", text, longest)
	}
	return nil
}

func (v *cidr) UnmarshalText(text []byte) (err error) {
	v.Prefix, err = netip.ParsePrefix(string(text))
	if p := v.Prefix; err != nil || p.Addr().Is4In6() {
		return fmt.Errorf("%.64q is not a CIDR; write for example 10.9.0.0/16, or 10.9.0.1/32 for one address; no zone, no IPv4 in IPv6 form", text)
	} else if p != p.Masked() {
		return fmt.Errorf("%.64q has bits set after the prefix; write %s for the whole of it, or %s/%d for the address alone", text, p.Masked(), p.Addr(), p.Addr().BitLen())
	}
	return nil
}

func (v *addressOrCIDR) UnmarshalText(text []byte) error {
	if ip, err := netip.ParseAddr(string(text)); err == nil && ip == canonical(ip) {
		v.Prefix = netip.PrefixFrom(ip, ip.BitLen())
		return nil
	}
	return v.cidr.UnmarshalText(text)
}
