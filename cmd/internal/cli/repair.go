package cli

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// Repair says what a finding means, and the command that repairs it; empty if there is none that is safe.
func Repair(f document.Finding) (text, command string) {
	holder, reserved := cmp.Or(f.Pod.String(), f.Netns), ReservationOf(f, false)
	switch {
	case isHeldByPod(f):
		return fmt.Sprintf("%s is reserved for sandbox %s, which does not exist any more, and %s has it. "+
			"Do not free it while that pod runs: the next pod would get it.", f.IP, reserved, holder), ""
	case f.Kind == "unheld":
		text = fmt.Sprintf("%s is reserved for sandbox %s, which does not exist any more: the range has one address less.", f.IP, reserved)
		if !isPath(f.Store) || !isAddress(f.IP) || !isSandbox(f.ReservedFor) {
			return text, ""
		}
		// Only if it is still that reservation: the address may be another pod's by now.
		return text + " If no other runtime has that container, free it:",
			fmt.Sprintf("flock %s/lock sh -c 'grep -q ^%s %[1]s/%[3]s && rm %[1]s/%[3]s'", f.Store, reservedID(f), f.IP)
	case takenByHand(f):
		will := f.Book + " may give it to another pod"
		if f.Kind == "mismatched" {
			will = f.Book + " has reserved it for " + reserved
		}
		return fmt.Sprintf("%s has %s, which no network plugin gave it: it was probably taken by hand, and %s. "+
			"Take the address from the pod, or delete the pod.", holder, f.IP, will), ""
	case f.Kind == "mismatched":
		return fmt.Sprintf("%s has %s, which %s has reserved for %s: they collide as soon as both use it. Delete %[1]s; IPAM decides which address its successor gets.",
			holder, f.IP, f.Book, reserved), ""
	}
	text = fmt.Sprintf("%s has %s, which %s has not reserved: the next pod may get it. Delete the pod, so that its successor gets an address with a reservation",
		holder, f.IP, f.Book)
	// Only of the primary interface it is known that its name in the pod is eth0, which is part of a reservation.
	if f.Given == detector.GivenUnknown || !isSandbox(f.Sandbox) || !isPath(f.Store) || !isAddress(f.IP) {
		return text + ".", ""
	}
	return text + "; or reserve the address for it again:",
		// The folder may be gone with all reservations.
		fmt.Sprintf(`mkdir -p %s && flock %[1]s/lock sh -c 'set -C; printf "%[2]s\r\neth0" >%[1]s/%[3]s'`, f.Store, f.Sandbox, f.IP)
}

// IsApart reports whether a finding is repaired in another way than others of its kind.
func IsApart(f document.Finding) bool { return takenByHand(f) || isHeldByPod(f) }

// isHeldByPod reports whether a pod has the address of a reservation that nobody holds.
func isHeldByPod(f document.Finding) bool { return f.Kind == "unheld" && f.Interface != "" }

// takenByHand reports whether no network plugin gave the holder its address.
func takenByHand(f document.Finding) bool { return f.Given == detector.GivenNo }

// ReservationOf says for whom the address of a finding is reserved.
func ReservationOf(f document.Finding, wide bool) string {
	id := f.ReservedFor
	if !wide {
		id = reservedID(f)
	}
	return cmp.Or(f.ReservedPod.String(), id, "-")
}

// reservedID is the beginning of the id of the sandbox that has the reservation, as crictl prints it.
func reservedID(f document.Finding) string { return f.ReservedFor[:min(len(f.ReservedFor), 13)] }

// isPath reports whether a path is safe for a shell.
func isPath(path string) bool {
	const safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-"
	return strings.HasPrefix(path, "/") && !strings.Contains(path, "..") && strings.Trim(path, safe) == ""
}

// isAddress reports whether it is an address as IPAM names its files. A zone may be any text.
func isAddress(ip netip.Addr) bool { return ip.IsValid() && !ip.Is4In6() && ip.Zone() == "" }

// isSandbox reports whether it is a whole id of a sandbox.
func isSandbox(id string) bool {
	return len(id) >= 32 && strings.Trim(id, "0123456789abcdef") == ""
}
