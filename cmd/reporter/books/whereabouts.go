package books

import (
	"cmp"
	"encoding/binary"
	"iter"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// whereabouts is the book of Whereabouts: an IPPool has the addresses of pods in one range, and an OverlappingRangeIPReservation one
// of them, whatever the range. It has no nodes. Only the format is known, it never ran with Whereabouts. (github.com/k8snetworkplumbingwg/whereabouts:
// pkg/api/whereabouts.cni.cncf.io/v1alpha1, pkg/storage/kubernetes)
type whereabouts struct {
	ranged, single *source
	ranges         // of IPPools, by key
	byIP           map[netip.Addr][]booking
	byObject       map[place][]netip.Addr
	endings
}

// booking is a reservation in an object.
type booking struct {
	Reservation
	in place
}

const whereaboutsGroup = "/apis/whereabouts.cni.cncf.io/v1alpha1/"

// whereaboutsGrace is how often its reconciler frees the addresses of pods that do not exist, by default.
const whereaboutsGrace = 24 * time.Hour

func newWhereabouts() *ipam {
	w := &whereabouts{byIP: make(map[netip.Addr][]booking), byObject: make(map[place][]netip.Addr)}
	w.ranged = newSource("ippools", []string{whereaboutsGroup + "ippools"}, w.takePool, w.dropPool)
	w.single = newSource("overlappingrangeipreservations", []string{whereaboutsGroup + "overlappingrangeipreservations"}, w.takeSingle, w.dropSingle)
	return &ipam{format: w, sources: []*source{w.ranged, w.single}, grace: whereaboutsGrace}
}

// whereaboutsPool is what is read of an IPPool.
type whereaboutsPool struct {
	object
	Spec struct {
		Range       string
		Allocations map[string]struct{ ID, PodRef string }
	}
}

func (w *whereabouts) takePool(o *whereaboutsPool) (int, error) {
	pool, err := parseRange(o.Spec.Range, widest4, widest6)
	if err != nil {
		return 0, err
	}
	// Offsets count from the address that the range is written with.
	first, _, _ := strings.Cut(o.Spec.Range, "/")
	var list []Reservation
	for offset, a := range o.Spec.Allocations {
		if ip, ok := addressAt(first, offset); ok && pool.Contains(ip) {
			list = append(list, whereaboutsReservation(ip, a.PodRef, a.ID))
		}
	}
	w.put(place{of: w.ranged, key: o.key()}, list)
	w.set(o.key(), []netip.Prefix{pool})
	return len(list), nil
}

func (w *whereabouts) dropPool(key string) {
	w.put(place{of: w.ranged, key: key}, nil)
	w.set(key, nil)
}

// addressAt returns the address at an offset.
func addressAt(first, offset string) (ip netip.Addr, ok bool) {
	n, err := strconv.ParseUint(offset, 10, 64)
	ip, err2 := netip.ParseAddr(first)
	if err != nil || err2 != nil || strconv.FormatUint(n, 10) != offset { // an offset that is written twice counts once
		return ip, false
	}
	b := ip.As16()
	low := binary.BigEndian.Uint64(b[8:])
	binary.BigEndian.PutUint64(b[8:], low+n)
	return netip.AddrFrom16(b).Unmap(), n <= math.MaxUint64-low
}

// whereaboutsSingle is what is read of an OverlappingRangeIPReservation.
type whereaboutsSingle struct {
	object
	Spec struct{ ContainerID, PodRef string }
}

func (w *whereabouts) takeSingle(o *whereaboutsSingle) (int, error) {
	ip, ok := addressIn(o.Metadata.Name)
	if !ok {
		return 0, errRange
	}
	w.put(place{of: w.single, key: o.key()}, []Reservation{whereaboutsReservation(ip, o.Spec.PodRef, o.Spec.ContainerID)})
	return 1, nil
}

func (w *whereabouts) dropSingle(key string) { w.put(place{of: w.single, key: key}, nil) }

// addressIn reads the address in the name of a reservation: after a network's name and "-", and with "-" for ":". The longest one counts,
// because a part of an address may be one, too.
func addressIn(name string) (netip.Addr, bool) {
	for rest, more := name, true; more; _, rest, more = strings.Cut(rest, "-") {
		if ip, err := netip.ParseAddr(strings.ReplaceAll(rest, "-", ":")); err == nil {
			return ip, true
		}
	}
	return netip.Addr{}, false
}

func whereaboutsReservation(ip netip.Addr, pod, sandbox string) Reservation {
	namespace, name, _ := strings.Cut(pod, "/")
	return Reservation{IP: ip, Pod: podName(namespace, name), Sandbox: sandboxOf(sandbox)}
}

// put gives an object these reservations, which may be none, instead of those that it had.
func (w *whereabouts) put(in place, list []Reservation) {
	var before []Reservation
	for _, ip := range w.byObject[in] {
		w.byIP[ip] = slices.DeleteFunc(w.byIP[ip], func(b booking) bool {
			if b.in == in {
				before = append(before, b.Reservation)
			}
			return b.in == in
		})
		if len(w.byIP[ip]) == 0 {
			delete(w.byIP, ip)
		}
	}
	delete(w.byObject, in)
	for _, r := range list {
		if len(w.byIP[r.IP]) == maxPods {
			continue
		}
		w.byObject[in] = append(w.byObject[in], r.IP)
		w.byIP[r.IP] = append(w.byIP[r.IP], booking{r, in})
	}
	w.end(before, w.reservation)
}

func (w *whereabouts) reservations() iter.Seq[Reservation] {
	return func(yield func(Reservation) bool) {
		for _, list := range w.byIP {
			for _, b := range list {
				if !yield(b.Reservation) {
					return
				}
			}
		}
	}
}

// maxPods bounds the reservations of one address: whose it is in which network is not known, anyway.
const maxPods = 16

// reservation: pods of several networks may have one address. Then it is not known whose reservation is meant.
func (w *whereabouts) reservation(ip netip.Addr) (Reservation, bool) {
	list := w.byIP[ip]
	if len(list) == 0 || w.several(ip) {
		return Reservation{}, false
	}
	// One of a pool has the sandbox.
	return slices.MaxFunc(list, func(x, y booking) int { return cmp.Compare(x.Sandbox, y.Sandbox) }).Reservation, true
}

func (w *whereabouts) several(ip netip.Addr) bool {
	return slices.ContainsFunc(w.byIP[ip], func(b booking) bool { return b.Pod != w.byIP[ip][0].Pod })
}

// pool is the name of the smallest IPPool with an address.
func (w *whereabouts) pool(ip netip.Addr) string {
	for key := range w.of(ip) {
		if w.several(ip) {
			break
		}
		return lastOf(key)
	}
	return ""
}

func (w *whereabouts) object(r Reservation) place {
	if list := w.byIP[r.IP]; len(list) > 0 {
		return list[0].in.of.place(list[0].in.key)
	}
	for key := range w.of(r.IP) {
		return w.ranged.place(key)
	}
	return place{of: w.ranged}
}

// pools: what an IPPool leaves out of its range is not in the object, and counts as left.
func (w *whereabouts) pools() iter.Seq2[string, Left] {
	return func(yield func(string, Left) bool) {
		for key, list := range w.byOwner {
			all := sizeOf(list[0])
			if !yield(lastOf(key), Left{all, all - float64(len(w.byObject[place{of: w.ranged, key: key}]))}) {
				return
			}
		}
	}
}
