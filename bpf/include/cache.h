//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */

/* A cache of the hash maps by ifindex and family: most interfaces have one address of each family,
 * so that a packet needs one array lookup and no hashing. */
#ifndef DUPIP_CACHE_H
#define DUPIP_CACHE_H

#include "kernel.h"
#include "address.h"
#include "bucket.h"
#include "config.h"

/* A data source of one interface and family, and what refuses others of them. */
struct cached {
	struct mapping mapping;
	__u64 owner; /* the ifindex, and in the upper half the epoch */
	__u64 until_ns;
	struct bucket bucket; /* a copy of the interface's bucket for data, when it was empty */
	__u64 refused;	      /* packets that are not counted at the interface yet */
};

/* Two interfaces with one set have a slot each. A third one has none while these are live: if they
 * replaced each other, all would be slow. */
struct cache_set {
	struct cached slots[2];
};

enum { CACHE_SETS = 1024, MAX_UNCOUNTED = 63 };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, CACHE_SETS);
	__type(key, __u32);
	__type(value, struct cache_set);
} cache SEC(".maps");

/* A coarse clock, in nanoseconds since some time before boot. The kernel inlines the helper as one
 * load, while a helper that reads CLOCK_MONOTONIC_COARSE costs as much as all else for a packet. */
static __always_inline __u64 coarse_now(void)
{
	return bpf_jiffies64() * tick_ns;
}

static __always_inline struct cache_set *find_set(__u32 ifindex, int is_ipv6)
{
	__u32 index = (ifindex * 2 + is_ipv6) % CACHE_SETS;

	return bpf_map_lookup_elem(&cache, &index);
}

/* The owner of a slot that is filled now. It is read before anything that goes into the slot: when
 * user space changes one of those afterwards, it renews the epoch, and the slot is not used. */
static __always_inline __u64 owner_now(__u32 ifindex)
{
	return ifindex | (__u64)epoch << 32;
}

static __always_inline int is_live(const struct cached *slot, __u64 owner, __u64 now)
{
	return slot->owner >> 32 == owner >> 32 && now < slot->until_ns;
}

/* Returns the slot that an interface has, or else may take. */
static __always_inline struct cached *find_slot(struct cache_set *set, __u64 owner, __u64 now)
{
	struct cached *first = &set->slots[0], *second = &set->slots[1];

	if (first->owner == owner || (second->owner != owner && !is_live(first, owner, now)))
		return first;
	return second->owner == owner || !is_live(second, owner, now) ? second : 0;
}

static __always_inline void fill_slot(struct cached *slot, const struct mapping *mapping,
				      __u64 owner, __u64 until_ns)
{
	/* until_ns last: an interrupt that reads a half-written slot finds it expired. */
	slot->until_ns = 0;
	barrier();
	slot->mapping = *mapping;
	slot->owner = owner;
	slot->bucket.full_at = 0;
	slot->refused = 0;
	barrier();
	slot->until_ns = until_ns;
}

static __always_inline int is_equal(const struct mapping *a, const struct mapping *b)
{
	return a->address.ip.low == b->address.ip.low && a->address.ip.high == b->address.ip.high &&
	       a->address.vlan == b->address.vlan && a->mac == b->mac;
}

/* Whether there is no token for an unknown source. A flood of them needs to find neither the
 * interface nor, once more, the address. Others only take tokens from the bucket, so that it is as
 * empty as its copy. The interface counts these packets later, up to MAX_UNCOUNTED at once. */
static __always_inline int is_refused(struct cached *slot, __u64 now)
{
	if (slot->refused == MAX_UNCOUNTED ||
	    bucket_look(&slot->bucket, now, (struct rate){data_token_ns, data_full_ns}))
		return 0;
	slot->refused++;
	return 1;
}

#endif
