// Package lab builds clusters out of network namespaces: nodes with a bridge and an
// uplink, pods behind real veth pairs, guests that own an address as a virtual
// machine would, and real agents that run on the nodes.
//
// It owns the names it makes (they all start with "dl-" and the process id) and removes them: at Close,
// when the context of the lab ends, and, for a process that was killed, at the next start. It does not
// know how the agent works inside; it uses the binary, its exit code, its log and its API.
//
// Everything needs root. Methods return errors; [NewT] makes a lab whose helpers fail the test instead.
package lab
