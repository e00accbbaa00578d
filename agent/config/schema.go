package config

import (
	"net/netip"
	"path"
	"strings"
	"unicode"

	"github.com/goccy/go-yaml/ast"
)

// The keys of the file's mappings.
var (
	topKeys     = []string{"networks", "shared", "ignore", "limits"}
	networkKeys = []string{"name", "scope", "solicit", "match"}
	matchKeys   = []string{"interfaces", "peers", "bridges", "cidrs"}
	ignoreKeys  = []string{"interfaces"}
	limitKeys   = func() (keys []string) {
		for _, l := range limits {
			keys = append(keys, l.key)
		}
		return keys
	}()
)

// The bounds of what is looked through for each sighting, and of what becomes a label.
const (
	maxNetworks   = 256
	maxEntries    = 64 // of one key of a match
	maxShared     = 1_024
	maxIgnored    = 256
	maxNameLength = 63
	maxGlobLength = 128
	// maxInterfaceName is IFNAMSIZ of the kernel's if.h without the closing NUL.
	maxInterfaceName = 15
)

// Parse reads the text of a configuration file, which is one document of YAML 1.2 or
// nothing. It is strict: what it does not know, or cannot make sense of, is an error.
// The error joins up to ten [Problem]s, one line each.
func Parse(data []byte) (*Config, error) {
	root, err := parse(data)
	if err != nil {
		return nil, err
	}
	var d decoder
	c := new(Config)
	sections := d.mapping(root, "", topKeys)
	d.networks(c, sections["networks"])
	d.shared(c, sections["shared"])
	ignore := d.mapping(sections["ignore"], "ignore", ignoreKeys)
	for n, entry := range d.list(ignore["interfaces"], "ignore.interfaces", maxIgnored) {
		if g, ok := d.glob(entry, index("ignore.interfaces", n)); ok {
			c.ignored = append(c.ignored, g)
		}
	}
	d.limits(c, sections["limits"])
	if err := d.err(); err != nil {
		return nil, err
	}
	return c, nil
}

// properties gathers what the entries of one name say of their network.
type properties struct {
	scope, solicit         bool // given
	scopeLine, solicitLine int
	rules                  bool // some entry has a match
	network                Network
}

func (d *decoder) networks(c *Config, n ast.Node) {
	byName := make(map[string]*properties)
	var names []string
	var owners []*properties // of the rules
	for i, entry := range d.list(n, "networks", maxNetworks) {
		at := index("networks", i)
		if entry.Type() == ast.NullType {
			d.fail(entry, at, "is empty; give the network a name, or remove the entry")
			continue
		}
		fields := d.mapping(entry, at, networkKeys)
		if fields == nil {
			continue
		}
		name, ok := d.networkName(entry, fields["name"], at)
		p := byName[name]
		if p == nil {
			p = &properties{network: Network{Name: name, Solicit: true}}
			if ok {
				byName[name] = p
				names = append(names, name)
			}
		}
		d.properties(p, fields, at)
		if match, given := fields["match"]; given {
			p.rules = true
			c.rules = append(c.rules, d.match(match, at+".match"))
			owners = append(owners, p)
		}
	}
	c.byName = make(map[string]Network, len(names))
	for _, name := range names {
		p := byName[name]
		switch {
		case p.scope:
		case p.rules:
			p.network.Scope = Cluster
		default:
			p.network.Scope = ownScope(name)
		}
		c.byName[name] = p.network
		c.networks = append(c.networks, p.network)
	}
	for i, p := range owners {
		c.rules[i].network = p.network
	}
}

func (d *decoder) networkName(entry, n ast.Node, at string) (string, bool) {
	if n == nil {
		d.fail(entry, at, "has no name; add one, as in name: storage")
		return "", false
	}
	at += ".name"
	name, ok := d.text(n, at)
	if !ok {
		return "", false
	}
	good := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("@._-", r)
	}
	base, tagged := cutTag(name)
	switch {
	case name == "":
		d.fail(n, at, "is empty; give the network a name")
	case len(name) > maxNameLength:
		d.fail(n, at, "%s is longer than %d characters; shorten it", quote(name), maxNameLength)
	case strings.ContainsFunc(name, func(r rune) bool { return !good(r) }):
		d.fail(n, at, "%s is not a name; use letters, digits and @ . _ - only", quote(name))
	case tagged:
		d.fail(n, at, "%s ends as the name of a VLAN does; a VLAN belongs to its network, so write %s", quote(name), quote(base))
	default:
		return name, true
	}
	return "", false
}

// properties takes in scope and solicit of one entry. Another entry of the same name
// must not contradict.
func (d *decoder) properties(p *properties, fields map[string]ast.Node, at string) {
	if n, given := fields["scope"]; given {
		if scope, ok := d.scope(n, at+".scope"); ok {
			line, _ := position(n)
			if p.scope && p.network.Scope != scope {
				d.fail(n, at+".scope", "network %s has scope %s on line %d; give it one scope", quote(p.network.Name), p.network.Scope, p.scopeLine)
			} else if !p.scope {
				p.scope, p.scopeLine, p.network.Scope = true, line, scope
			}
		}
	}
	if n, given := fields["solicit"]; given {
		if solicit, ok := d.onOff(n, at+".solicit"); ok {
			line, _ := position(n)
			if p.solicit && p.network.Solicit != solicit {
				d.fail(n, at+".solicit", "network %s is set otherwise on line %d; set it once", quote(p.network.Name), p.solicitLine)
			} else if !p.solicit {
				p.solicit, p.solicitLine, p.network.Solicit = true, line, solicit
			}
		}
	}
}

func (d *decoder) match(n ast.Node, at string) rule {
	var r rule
	pairs, ok := n.(ast.MapNode)
	if n.Type() == ast.NullType || ok && !pairs.MapRange().Next() {
		d.fail(n, at, "is empty; name interfaces, peers, bridges or cidrs, or leave the key out")
		return r
	}
	fields := d.mapping(n, at, matchKeys)
	globs := func(key string) (globs []glob) {
		for i, entry := range d.words(fields[key], join(at, key), maxEntries) {
			if g, ok := d.glob(entry, index(join(at, key), i)); ok {
				globs = append(globs, g)
			}
		}
		return globs
	}
	r.interfaces, r.peers, r.bridges = globs("interfaces"), globs("peers"), globs("bridges")
	for i, entry := range d.words(fields["cidrs"], at+".cidrs", maxEntries) {
		if p, ok := d.prefix(entry, index(at+".cidrs", i), false); ok {
			r.cidrs = append(r.cidrs, p)
		}
	}
	return r
}

func (d *decoder) shared(c *Config, n ast.Node) {
	for i, entry := range d.list(n, "shared", maxShared) {
		if p, ok := d.prefix(entry, index("shared", i), true); ok {
			c.shared = append(c.shared, p)
		}
	}
	c.shared = disjoint(c.shared)
}

func (d *decoder) limits(c *Config, n ast.Node) {
	fields := d.mapping(n, "limits", limitKeys)
	for _, l := range limits {
		if n, given := fields[l.key]; given {
			*l.field(&c.limits) = d.number(n, "limits."+l.key, l.otherwise, l.min, l.max)
		}
	}
	all := c.limits.withDefaults()
	if n := fields["bindingsPerInterface"]; n != nil && all.BindingsPerInterface > all.Bindings {
		d.fail(n, "limits.bindingsPerInterface", "%d is more than the whole table has (bindings: %d); lower it", all.BindingsPerInterface, all.Bindings)
	}
}

// glob reads a pattern for interface names.
func (d *decoder) glob(n ast.Node, at string) (glob, bool) {
	pattern, ok := d.text(n, at)
	if !ok {
		return glob{}, false
	}
	_, err := path.Match(pattern, "")
	switch {
	case pattern == "":
		d.fail(n, at, "is empty; write a name or a pattern such as cali*")
	case len(pattern) > maxGlobLength:
		d.fail(n, at, "%s is longer than %d characters; shorten it", quote(pattern), maxGlobLength)
	case strings.ContainsFunc(pattern, func(r rune) bool { return r == '/' || r == ':' || !unicode.IsGraphic(r) || unicode.IsSpace(r) }):
		d.fail(n, at, "%s has a character that no interface name has (space, slash, colon); remove it", quote(pattern))
	case err != nil:
		d.fail(n, at, "%s is not a pattern: [ needs a ] and a range two ends; put \\ before a [ that means itself", quote(pattern))
	case !strings.ContainsAny(pattern, globMeta) && len(pattern) > maxInterfaceName:
		d.fail(n, at, "%s never matches, interface names have at most %d characters; shorten it, or end it with *", quote(pattern), maxInterfaceName)
	default:
		return newGlob(pattern), true
	}
	return glob{}, false
}

// prefix reads a CIDR or, where allowed, a single address.
func (d *decoder) prefix(n ast.Node, at string, single bool) (netip.Prefix, bool) {
	text, ok := d.text(n, at)
	if !ok {
		return netip.Prefix{}, false
	}
	kind := "a CIDR; write for example 10.9.0.0/16"
	if single {
		kind = "an address or a CIDR; write for example 10.9.0.1 or 10.9.0.0/16"
	}
	ip, ipErr := netip.ParseAddr(text)
	p, err := netip.ParsePrefix(text)
	switch {
	case ipErr == nil && single && ip.Zone() == "" && !ip.Is4In6():
		return netip.PrefixFrom(ip, ip.BitLen()), true
	case ipErr == nil && ip.Zone() != "":
		d.fail(n, at, "%s has a zone; write the address without it", quote(text))
	case ipErr == nil && ip.Is4In6():
		d.fail(n, at, "%s is an IPv4 address in IPv6 form; write %s", quote(text), ip.Unmap())
	case ipErr == nil:
		d.fail(n, at, "%s is an address, not a CIDR; write %s/%d for it alone", quote(text), ip, ip.BitLen())
	case err != nil:
		d.fail(n, at, "%s is not %s", quote(text), kind)
	case p.Addr().Is4In6():
		d.fail(n, at, "%s is an IPv4 prefix in IPv6 form; write it as IPv4", quote(text))
	case p != p.Masked() && single:
		d.fail(n, at, "%s has bits set after the prefix; write %s for the whole of it, or %s for the address alone", quote(text), p.Masked(), p.Addr())
	case p != p.Masked():
		d.fail(n, at, "%s has bits set after the prefix; write %s for the whole of it, or %s/%d for the address alone", quote(text), p.Masked(), p.Addr(), p.Addr().BitLen())
	default:
		return p, true
	}
	return netip.Prefix{}, false
}
