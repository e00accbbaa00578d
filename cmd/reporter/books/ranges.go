package books

import (
	"cmp"
	"errors"
	"iter"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/dupip/dupip/document"
)

// ranges are those of owners, and find the owners of an address. The zero value has none.
type ranges struct {
	byOwner map[string][]netip.Prefix
	byRange map[netip.Prefix][]string // owners, sorted
	lengths [129]int                  // how many ranges of each length there are: only those are looked up
}

// set gives an owner these ranges, which may be none, instead of those that it had.
func (r *ranges) set(owner string, list []netip.Prefix) {
	if r.byOwner == nil {
		r.byOwner, r.byRange = make(map[string][]netip.Prefix), make(map[netip.Prefix][]string)
	}
	for _, p := range r.byOwner[owner] {
		i, _ := slices.BinarySearch(r.byRange[p], owner)
		if r.byRange[p] = slices.Delete(r.byRange[p], i, i+1); len(r.byRange[p]) == 0 {
			delete(r.byRange, p)
		}
		r.lengths[p.Bits()]--
	}
	delete(r.byOwner, owner)
	if len(list) == 0 {
		return
	}
	slices.SortFunc(list, func(x, y netip.Prefix) int { return cmp.Or(x.Addr().Compare(y.Addr()), x.Bits()-y.Bits()) })
	r.byOwner[owner] = slices.Compact(list)
	for _, p := range r.byOwner[owner] {
		i, _ := slices.BinarySearch(r.byRange[p], owner)
		r.byRange[p] = slices.Insert(r.byRange[p], i, owner)
		r.lengths[p.Bits()]++
	}
}

// of yields the owners of the ranges that an address is in, those of the narrowest range first.
func (r *ranges) of(ip netip.Addr) iter.Seq[string] {
	return func(yield func(string) bool) {
		for bits := ip.BitLen(); bits >= 0; bits-- {
			if r.lengths[bits] == 0 {
				continue
			}
			p, err := ip.Prefix(bits)
			if err != nil {
				return
			}
			for _, owner := range r.byRange[p] {
				if !yield(owner) {
					return
				}
			}
		}
	}
}

// The widest ranges that are believed. Who may write an object could claim the addresses of everybody with a wider one.
const (
	widest4, widest6         = 8, 24  // of a pool
	nodeWidest4, nodeWidest6 = 12, 40 // of a node
)

var errRange = errors.New("it has a range that is none, or too wide")

// parseRange reads a range, or an address as a range of one.
func parseRange(text string, bits4, bits6 int) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		ip, err := netip.ParseAddr(text)
		if err != nil || ip.Zone() != "" {
			return p, errRange
		}
		p = netip.PrefixFrom(ip, ip.BitLen())
	}
	if least := map[bool]int{true: bits4, false: bits6}[p.Addr().Is4()]; p.Bits() < least || p.Addr().Is4In6() {
		return p, errRange
	}
	return p.Masked(), nil
}

// sizeOf is how many addresses a range has.
func sizeOf(p netip.Prefix) float64 { return math.Ldexp(1, p.Addr().BitLen()-p.Bits()) }

// podName joins the names of a namespace and a pod; empty if they are none. They become part of paths, and of commands.
func podName(namespace, pod string) string {
	if !isName(namespace) || !isName(pod) {
		return ""
	}
	return namespace + "/" + pod
}

// isName reports whether a text may be the name of an object.
func isName(text string) bool {
	return text != "" && len(text) <= document.MaxName && text[0] != '.' && strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789-.") == ""
}

// sandboxOf is the beginning of a sandbox's id, empty if it is none.
func sandboxOf(id string) string {
	if len(id) != 64 || strings.Trim(id, "0123456789abcdef") != "" {
		return ""
	}
	return strings.Clone(id[:sandboxID])
}

// endings are the reservations that have ended since they were asked for.
type endings []ended

// end notes which of these reservations have ended, by those that there are now.
func (e *endings) end(before []Reservation, now func(netip.Addr) (Reservation, bool)) {
	for _, r := range before {
		if is, reserved := now(r.IP); r.Pod != "" && (!reserved || is.Pod != r.Pod || is.Sandbox != r.Sandbox) && len(*e) < maxFormer {
			*e = append(*e, ended{r, time.Now().Round(0)})
		}
	}
}

func (e *endings) ended() (list []ended) {
	list, *e = *e, nil
	return list
}
