// Package incidents plays public reports of pod IPs given out twice, for real: containerd,
// runc and CNI plugins make the pods as a kubelet has them made, what went wrong in the
// report goes wrong with the plugins' own books, and the agents of the nodes have to find
// what there is and nothing else.
//
// It owns the five plays, which name where they were reported. Pods that the lab makes by
// itself are for package scenarios.
package incidents
