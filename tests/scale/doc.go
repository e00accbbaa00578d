// Package scale has its subject in its tests: clusters of 50, 500 and 5,000 nodes in one
// process, in virtual time. Every node is real gossip and a real detector, joined as
// package agent joins them; the network between them is package simnet, and pods exist in
// name only. At 5,000 the membership is a simulation too; see the crowd.
//
// It judges what it finds by the goals of the design, and prints the rest. `make scale`
// runs it; a short one is a part of all tests.
package scale
