package books

import (
	"errors"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unique"
)

// calico is the book of Calico's IPAM in the API server: the attributes of its blocks say who owns an address. Whose a block is says nothing,
// because nodes borrow addresses. (github.com/projectcalico/calico: libcalico-go/lib/apis/crd.projectcalico.org/v1, libcalico-go/lib/ipam)
type calico struct {
	blocks, ranges *source
	byName         map[string]*block
	poolsByName    map[string]calicoPool
	byRange        map[netip.Prefix]*block
	endings
}

// block is a range with the reservations in it.
type block struct {
	name     string
	cidr     netip.Prefix
	free     int
	reserved []Reservation // by address
}

// calicoPool is an IPPool.
type calicoPool struct {
	cidr      netip.Prefix
	blockBits int
	disabled  bool
}

const (
	calicoBlocks, calicoPools = "ipamblocks", "ippools"
	// calicoGrace is leakGracePeriod of kube-controllers, by default.
	calicoGrace = 15 * time.Minute
	// maxBlock is how many addresses a block has at most.
	maxBlock = 1 << 12
)

// calicoGroups are where its resources may be: since 2025 its own API group may be one of CustomResourceDefinitions.
var calicoGroups = []string{"/apis/crd.projectcalico.org/v1/", "/apis/projectcalico.org/v3/"}

func inGroups(groups []string, resource string) (paths []string) {
	for _, group := range groups {
		paths = append(paths, group+resource)
	}
	return paths
}

func newCalico() *ipam {
	c := &calico{byName: make(map[string]*block), poolsByName: make(map[string]calicoPool), byRange: make(map[netip.Prefix]*block)}
	c.blocks = newSource(calicoBlocks, inGroups(calicoGroups, calicoBlocks), c.takeBlock, c.dropBlock)
	c.ranges = newSource(calicoPools, inGroups(calicoGroups, calicoPools), c.takePool, c.dropPool)
	return &ipam{format: c, sources: []*source{c.blocks, c.ranges}, primary: true, grace: calicoGrace}
}

// calicoBlock is what is read of an IPAMBlock.
type calicoBlock struct {
	object
	Spec struct {
		CIDR        netip.Prefix
		Allocations []*int
		Attributes  []struct {
			Handle    string            `json:"handle_id"`
			Secondary map[string]string `json:"secondary"`
			Released  *time.Time        `json:"releasedAt"`
			Alternate map[string]string `json:"alternateOwnerAttrs"`
		}
		Unallocated []int
		Deleted     bool
	}
}

func (c *calico) takeBlock(o *calicoBlock) (int, error) {
	s := o.Spec
	if s.Deleted { // it is empty, and about to go
		c.dropBlock(o.key())
		return 0, nil
	}
	if !s.CIDR.IsValid() || s.CIDR.Addr().Is4In6() || sizeOf(s.CIDR) > maxBlock || float64(len(s.Allocations)) > sizeOf(s.CIDR) {
		return 0, errors.New("it is no block")
	}
	old := c.byName[o.key()]
	c.remove(o.key())
	b := &block{name: o.key(), cidr: s.CIDR.Masked(), free: len(s.Unallocated)}
	ip := b.cidr.Addr()
	for _, allocation := range s.Allocations {
		if allocation != nil && *allocation >= 0 && *allocation < len(s.Attributes) {
			if a := s.Attributes[*allocation]; a.Released == nil {
				b.reserved = append(b.reserved, calicoReservation(ip, a.Handle, a.Secondary, a.Alternate))
			}
		}
		ip = ip.Next()
	}
	c.byName[b.name], c.byRange[b.cidr] = b, b
	if old != nil {
		c.end(old.reserved, c.reservation)
	}
	return len(b.reserved), nil
}

// calicoReservation reads the attributes of an allocation. Those of a tunnel's address have no pod, and of a virtual machine the handle stays
// as it moves from pod to pod.
func calicoReservation(ip netip.Addr, handle string, owner, alternate map[string]string) Reservation {
	isMachine := strings.Contains(handle, ".vmi.")
	r := Reservation{IP: ip, Other: podName(alternate["namespace"], alternate["pod"]), Shared: isMachine || len(alternate) > 0}
	if isName(owner["node"]) {
		r.Node = unique.Make(owner["node"]).Value()
	}
	if isMachine || strings.HasPrefix(handle, "windows-reserved") {
		return r
	}
	r.Pod = podName(owner["namespace"], owner["pod"])
	r.Sandbox = sandboxOf(handle[strings.LastIndex(handle, ".")+1:])
	// The time is in the format of Go's time.Time.String.
	r.Since, _ = time.Parse("2006-01-02 15:04:05.999999999 -0700 MST", owner["timestamp"])
	return r
}

func (c *calico) dropBlock(name string) {
	if b := c.byName[name]; b != nil {
		c.remove(name)
		c.end(b.reserved, c.reservation)
	}
}

func (c *calico) remove(name string) {
	if b := c.byName[name]; b != nil {
		delete(c.byName, name)
		if c.byRange[b.cidr] == b {
			delete(c.byRange, b.cidr)
		}
	}
}

// calicoIPPool is what is read of an IPPool.
type calicoIPPool struct {
	object
	Spec struct {
		CIDR      netip.Prefix
		BlockSize int
		Disabled  bool
	}
}

func (c *calico) takePool(o *calicoIPPool) (int, error) {
	s := o.Spec
	if _, err := parseRange(s.CIDR.String(), widest4, widest6); err != nil {
		return 0, err
	}
	if s.BlockSize == 0 {
		s.BlockSize = s.CIDR.Addr().BitLen() - 6 // the default: 64 addresses
	}
	c.poolsByName[o.key()] = calicoPool{s.CIDR.Masked(), s.BlockSize, s.Disabled}
	return 1, nil
}

func (c *calico) dropPool(name string) { delete(c.poolsByName, name) }

func (c *calico) reservations() iter.Seq[Reservation] {
	return func(yield func(Reservation) bool) {
		for _, b := range c.byName {
			for _, r := range b.reserved {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// blockOf returns the block of an address, nil if there is none.
func (c *calico) blockOf(ip netip.Addr) *block {
	for bits := range ip.BitLen() + 1 {
		if p, err := ip.Prefix(ip.BitLen() - bits); err == nil && c.byRange[p] != nil {
			return c.byRange[p]
		}
		if 1<<min(bits, 30) > maxBlock {
			break
		}
	}
	return nil
}

func (c *calico) reservation(ip netip.Addr) (Reservation, bool) {
	if b := c.blockOf(ip); b != nil {
		if i, found := slices.BinarySearchFunc(b.reserved, ip, func(r Reservation, ip netip.Addr) int { return r.IP.Compare(ip) }); found {
			return b.reserved[i], true
		}
	}
	return Reservation{}, false
}

func (c *calico) poolOf(ip netip.Addr) (name string, pool calicoPool) {
	for n, p := range c.poolsByName {
		if p.cidr.Contains(ip) && (name == "" || p.cidr.Bits() > pool.cidr.Bits()) {
			name, pool = n, p
		}
	}
	return name, pool
}

func (c *calico) pool(ip netip.Addr) string {
	name, _ := c.poolOf(ip)
	return name
}

func (c *calico) object(r Reservation) place {
	name := ""
	if b := c.blockOf(r.IP); b != nil {
		name = b.name
	} else if pool, p := c.poolOf(r.IP); pool != "" {
		if cidr, err := r.IP.Prefix(p.blockBits); err == nil {
			name = strings.NewReplacer(".", "-", ":", "-", "/", "-").Replace(cidr.String())
		}
	}
	return c.blocks.place(name)
}

// pools: what no block has of a pool is left, too.
func (c *calico) pools() iter.Seq2[string, Left] {
	used := make(map[string]float64)
	for _, b := range c.byName {
		if name, _ := c.poolOf(b.cidr.Addr()); name != "" {
			used[name] += float64(int(1)<<min(b.cidr.Addr().BitLen()-b.cidr.Bits(), 30) - b.free)
		}
	}
	return func(yield func(string, Left) bool) {
		for name, p := range c.poolsByName {
			all := sizeOf(p.cidr)
			if !p.disabled && !yield(name, Left{all, all - used[name]}) {
				return
			}
		}
	}
}
