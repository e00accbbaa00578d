//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */

/* What netkit does with a packet that its programs leave alone (netkit_xmit, drivers/net/netkit.c,
 * Linux 6.7). Without programs that is the policy of the end that sends. A program that says "next"
 * to the kernel, and is the last one, lets the packet pass whatever the policy is, so that a pair
 * whose owner wants nothing to pass until its own program is there would be open with ours alone.
 */
#ifndef DUPIP_NETKIT_H
#define DUPIP_NETKIT_H

#include "kernel.h"

struct bpf_mprog_fp {
	void *prog;
} kernel_type;

struct bpf_mprog_entry {
	struct bpf_mprog_fp fp_items[64];
} kernel_type;

enum netkit_action {
	NETKIT_NEXT = -1,
	NETKIT_PASS = 0,
	NETKIT_DROP = 2,
};

struct netkit {
	struct net_device *peer;
	struct bpf_mprog_entry *active;
	enum netkit_action policy;
} kernel_type;

/* netdev_priv. */
static __always_inline struct netkit *netkit_of(const struct net_device *device)
{
	__u64 size = (kernel_size(struct net_device) + 31) & ~31ULL;

	return bpf_rdonly_cast((const void *)device + size, kernel_id(struct netkit));
}

/* Returns the verdict on a packet that goes from one end of the pair to the other. */
static __always_inline enum netkit_action netkit_verdict(struct __sk_buff *skb)
{
	struct sk_buff *kernel_skb = bpf_cast_to_kern_ctx(skb);
	/* The device of the packet is the one that receives it already. */
	struct netkit *sender = netkit_of(netkit_of(kernel_skb->dev)->peer);

	return sender->active->fp_items[1].prog ? NETKIT_NEXT : sender->policy;
}

#endif
