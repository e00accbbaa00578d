// Package bpf learns from the packets that enter at network interfaces which IP
// addresses live behind them.
//
// It owns the BPF programs, their maps, and their attachment to interfaces in three
// ways: tcx, tc (cls_bpf on clsact) and XDP. What a packet says about an address comes
// out of [Observer.Read] as a [Record], throttled in the kernel: about one record per
// address and half minute, and every answer to a question (ARP reply, neighbour
// advertisement).
//
// The programs never change what happens to a packet, nothing is pinned, and a process
// that dies leaves nothing behind but, in tc mode, a filter that [Sweep] removes.
//
// The package must not know what a pod, a netns or a conflict is. Everything it does with
// the network happens in the netns of the calling thread.
//
// It needs Linux 5.15 on amd64 or arm64, and CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON.
package bpf
