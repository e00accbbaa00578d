// Package peers runs other ways to find duplicate addresses on the lab's traffic, for a
// comparison: two programs that listen (arpwatch, tshark) and two small models (the rule
// of EVPN, and a look at what the API server lists).
//
// It owns how each of them is run at its best, and what counts as its alarm. It must not
// know what is right: it reports what they say, and somebody else judges.
package peers
