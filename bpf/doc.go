// Package bpf learns from the packets that enter at network interfaces, or leave by
// those inside another netns, which IP addresses live behind them.
//
// It owns the BPF programs, their maps, and their attachment to interfaces by tcx, tc (cls_bpf on
// clsact) or XDP. [Observer.Read] returns a [Record] for what a packet says about an address, throttled
// in the kernel: about one for each address in 30 s, and one for each answer or gratuitous packet (ARP
// reply, neighbour advertisement, gratuitous ARP). After [Observer.Forget] an address makes a record again
// at once. Many interfaces are observed before each has its program, by [Observer.OpenEarly]. After [Observer.Capture]
// the packets of an address are read by [Observer.ReadFrame], few and without their payload.
//
// The programs never change what happens to a packet, and nothing is pinned. In tc mode a killed
// process leaves a filter, which [Sweep] removes.
//
// The package must not know what a pod or a conflict is. It works in the netns of the calling
// thread, and in those of [AttachOptions].Inside during Attach only.
//
// It needs amd64 or arm64, what [CheckKernel] probes for, and CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON. The oldest kernel that it
// is tested under is Linux 5.10.
package bpf

// The generated objects are committed, so that a build needs no clang. Commit changes of the C sources
// together with the objects; record.go and frame.go have the layout of what the rings carry, too.

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -type interface -type capture -type inside_device observer observer.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3
