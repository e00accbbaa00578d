// Package othertools runs other detectors of duplicate addresses on the lab's traffic, for a comparison:
// two programs that listen (arpwatch, tshark) and two small models (EVPN's rule, and the addresses
// that the API server lists).
//
// It owns how each of them runs best and what counts as its alarm. It does not know which alarms are
// right.
package othertools
