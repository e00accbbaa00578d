package netns

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// listTries is how often an interrupted list is read.
const listTries = 3

// List repeats a netlink list that changed while the kernel sent it: such a list is incomplete. After
// three attempts the error is [netlink.ErrDumpInterrupted]. Errors name what was listed.
func List[T any](what string, list func() ([]T, error)) ([]T, error) {
	var all []T
	var err error
	for range listTries {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	if err != nil {
		err = fmt.Errorf("listing %s: %w", what, err)
	}
	return all, err
}

// filterSkipStats is RTEXT_FILTER_SKIP_STATS of linux/rtnetlink.h.
const filterSkipStats = 1 << 3

// dumpLimit is the CPU time after which dump does not repeat a list: a pod may make its list long and
// change it all the time.
const dumpLimit = 20 * time.Millisecond

// dump lists devices, addresses or routes of the calling thread's netns. It calls each for one message after
// the other, so that a pod with 60,000 addresses needs little memory. A message is valid until each
// returns. The thread must be locked. Like [List] it repeats an incomplete list. It calls begin before each
// attempt, so that the caller forgets the messages of the previous one.
func dump(r *nl.NetlinkRequest, reply uint16, begin func(), each func(message []byte)) error {
	var err error
	limit := threadTime() + dumpLimit
	for range listTries {
		begin()
		err = r.ExecuteIter(unix.NETLINK_ROUTE, reply, func(message []byte) bool {
			each(message)
			return true
		})
		if !errors.Is(err, netlink.ErrDumpInterrupted) || threadTime() > limit {
			break
		}
	}
	return err
}

// newDump returns the request for a list of devices or addresses.
func newDump(kind int) *nl.NetlinkRequest {
	r := nl.NewNetlinkRequest(kind, unix.NLM_F_DUMP)
	r.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	return r
}

// attributes yields the netlink attributes in b (struct nlattr, linux/netlink.h) up to the first that
// does not fit.
func attributes(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= unix.SizeofNlAttr {
			size := int(binary.NativeEndian.Uint16(b))
			if size < unix.SizeofNlAttr || size > len(b) {
				return
			}
			kind := binary.NativeEndian.Uint16(b[2:]) & nl.NLA_TYPE_MASK
			if !yield(kind, b[unix.SizeofNlAttr:size]) {
				return
			}
			b = b[min(len(b), (size+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1)):]
		}
	}
}

// eachDevice lists the devices of the calling thread's netns. See dump.
func eachDevice(begin func(), each func(Device)) error {
	r := newDump(unix.RTM_GETLINK)
	// Statistics are half of what the kernel sends about a device.
	r.AddData(nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(filterSkipStats)))
	err := dump(r, unix.RTM_NEWLINK, begin, func(message []byte) {
		if d, ok := parseDevice(message); ok {
			each(d)
		}
	})
	if err != nil {
		return fmt.Errorf("listing devices: %w", err)
	}
	return nil
}

// parseDevice reads an RTM_NEWLINK (struct ifinfomsg, linux/rtnetlink.h).
func parseDevice(message []byte) (Device, bool) {
	if len(message) < unix.SizeofIfInfomsg {
		return Device{}, false
	}
	d := Device{
		hardware: binary.NativeEndian.Uint16(message[2:]),
		Index:    int(int32(binary.NativeEndian.Uint32(message[4:]))),
		Up:       binary.NativeEndian.Uint32(message[8:])&unix.IFF_UP != 0,
		nsid:     -1,
	}
	for kind, value := range attributes(message[unix.SizeofIfInfomsg:]) {
		switch kind {
		case unix.IFLA_IFNAME:
			d.Name = unix.ByteSliceToString(value)
		case unix.IFLA_ADDRESS:
			d.MAC = slices.Clone(value)
		case unix.IFLA_LINK:
			d.Parent = number(value)
		case unix.IFLA_MASTER:
			d.master = number(value)
		case unix.IFLA_LINK_NETNSID:
			d.nsid = number(value)
		case unix.IFLA_LINKINFO:
			d.parseInfo(value)
		}
	}
	return d, true
}

func (d *Device) parseInfo(info []byte) {
	for kind, value := range attributes(info) {
		switch kind {
		case unix.IFLA_INFO_KIND:
			d.Kind = unix.ByteSliceToString(value)
		case unix.IFLA_INFO_DATA:
			if d.Kind != "vlan" { // the kind comes before its data
				continue
			}
			for kind, value := range attributes(value) {
				if kind == nl.IFLA_VLAN_ID && len(value) >= 2 {
					d.VLAN = binary.NativeEndian.Uint16(value)
				}
			}
		}
	}
}

// number reads an attribute of four bytes. A shorter one is 0.
func number(value []byte) int {
	if len(value) < 4 {
		return 0
	}
	return int(int32(binary.NativeEndian.Uint32(value)))
}
