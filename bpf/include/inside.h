//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */

/* The devices in other netns that we are attached to. */
#ifndef DUPIP_INSIDE_H
#define DUPIP_INSIDE_H

#include "kernel.h"
#include "config.h"

struct inside_device {
	__u64 netns_cookie;
	__u64 ifindex; /* in that netns */
};

/* The numbers that stand for them, because their ifindex may be that of other devices, too. No
 * ifindex is such a number: its highest bit is set. User space adds an entry before it attaches the
 * program. A device that moves to another netns is not found any more. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct inside_device);
	__type(value, __u32);
} inside_devices SEC(".maps");

/* A number that was found, so that most packets need no hashing, which takes 25 ns. It is valid for
 * one epoch. */
struct inside_slot {
	struct inside_device device;
	__u64 epoch, number;
};

enum { INSIDE_SLOTS = 1024 };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, INSIDE_SLOTS);
	__type(key, __u32);
	__type(value, struct inside_slot);
} inside_cache SEC(".maps");

/* Returns the number of the device that sends a packet, or 0. */
static __always_inline __u32 find_number(struct __sk_buff *skb)
{
	struct sk_buff *kernel_skb = bpf_cast_to_kern_ctx(skb);
	__u64 netns = kernel_skb->dev->nd_net.net->net_cookie, ifindex = skb->ifindex;
	__u32 index = (netns + ifindex) % INSIDE_SLOTS, *number;
	__u64 now = epoch;
	struct inside_slot *slot = bpf_map_lookup_elem(&inside_cache, &index);
	struct inside_device device;

	if (!slot)
		return 0;
	if (slot->epoch == now && slot->device.netns_cookie == netns &&
	    slot->device.ifindex == ifindex)
		return slot->number;
	device = (struct inside_device){netns, ifindex};
	number = bpf_map_lookup_elem(&inside_devices, &device);
	if (!number)
		return 0;
	/* The epoch last: an interrupt that reads a half-written slot finds it expired. */
	slot->epoch = 0;
	barrier();
	slot->device = device;
	slot->number = *number;
	barrier();
	slot->epoch = now;
	return slot->number;
}

#endif
