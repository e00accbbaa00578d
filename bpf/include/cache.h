//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */

/* Two caches of the hash maps, so that most packets need one array lookup and no hashing by the
 * kernel: of addresses that are known, and of interfaces. */
#ifndef DUPIP_CACHE_H
#define DUPIP_CACHE_H

#include "kernel.h"
#include "address.h"
#include "bucket.h"
#include "config.h"

/* A mapping that needs no record before a time. Of the mapping there is only a digest, so that a
 * line is small and a packet compares one number. All CPUs write to the same lines without a lock;
 * a line whose halves come from two writers has a tag that fits neither. */
struct line {
	__u64 tag;   /* of the digest and until */
	__u64 until; /* in ns; the lowest EPOCH_BITS are those of the epoch */
};

/* A third mapping with the same set has no line while these are live: if they replaced each other,
 * all would be slow. */
struct line_set {
	struct line lines[2];
};

enum { LINE_SETS = 32768, EPOCH_BITS = 20 };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LINE_SETS);
	__type(key, __u32);
	__type(value, struct line_set);
} lines SEC(".maps");

/* A coarse clock, in nanoseconds since some time before boot. The kernel inlines the helper as one
 * load, while a helper that reads CLOCK_MONOTONIC_COARSE costs as much as all else for a packet. */
static __always_inline __u64 coarse_now(void)
{
	return bpf_jiffies64() * tick_ns;
}

/* What tells a mapping from others, and where its line is. */
struct digest {
	__u64 value, set;
};

/* Each part of 32 bits times a secret number: for two different mappings, which a pod may choose,
 * the values are equal with less than 1 in 2^32 of all secrets (multilinear hashing; Lemire and
 * Kaser, Strongly universal string hashing is fast, 2014). The generation of the interface is not
 * in it, because each has epochs of its own.
 *
 * At an interface the 256 addresses that differ in the last byte have neighbouring sets, because
 * pods often have such addresses; other parts are spread. Neither the MAC nor the epoch decides
 * about the set.
 *
 * The epoch is read before anything that is stored under the digest: when user space changes one of
 * those afterwards, it renews the epoch, and the line is not used. */
static __always_inline struct digest digest_of(const struct address *address, __u64 mac,
					       __u64 epoch_then)
{
	struct ip ip = address->ip;
	__u64 low = __builtin_bswap64(ip.low), rest = 0;

	rest += (__u32)ip.high * secrets[0] + (ip.high >> 32) * secrets[1];
	rest += (__u32)address->place * secrets[6] + (address->place >> 32) * secrets[7];
	return (struct digest){
		.value = epoch_then + rest + (__u32)ip.low * secrets[2] +
			 (ip.low >> 32) * secrets[3] + (__u32)mac * secrets[4] +
			 (mac >> 32) * secrets[5],
		.set = ((rest + (low >> 8) * 0x9e3779b97f4a7c15ULL) >> 49) + (low & 0xff),
	};
}

static __always_inline struct line_set *find_lines(struct digest digest)
{
	__u32 index = digest.set % LINE_SETS;

	return bpf_map_lookup_elem(&lines, &index);
}

static __always_inline __u64 tag_of(struct digest digest, __u64 until)
{
	return digest.value + until * secrets[8];
}

static __always_inline int is_valid(const struct line *line, struct digest digest, __u64 now)
{
	__u64 until = line->until;

	return now < until && line->tag == tag_of(digest, until);
}

/* Whether a mapping needs no record. */
static __always_inline int has_line(const struct line_set *set, struct digest digest, __u64 now)
{
	return is_valid(&set->lines[0], digest, now) || is_valid(&set->lines[1], digest, now);
}

static __always_inline void clear_line(struct line_set *set, struct digest digest)
{
	for (int i = 0; i < 2; i++)
		if (is_valid(&set->lines[i], digest, 0))
			set->lines[i].until = 0;
}

static __always_inline int is_live(const struct line *line, __u64 epoch_then, __u64 now)
{
	return now < line->until && !((line->until ^ epoch_then) & ((1 << EPOCH_BITS) - 1));
}

static __always_inline void fill_line(struct line_set *set, struct digest digest, __u64 epoch_then,
				      __u64 now, __u64 until)
{
	struct line *line = &set->lines[0];

	if (is_live(line, epoch_then, now) && is_live(++line, epoch_then, now))
		return;
	until = until >> EPOCH_BITS << EPOCH_BITS | (epoch_then & ((1 << EPOCH_BITS) - 1));
	line->tag = tag_of(digest, until);
	line->until = until;
}

/* What a CPU knows of an interface. */
struct slot {
	__u64 epoch;
	__u32 ifindex, generation;
	struct bucket bucket; /* a copy of the interface's bucket for data, when it was empty */
	__u64 refused;	      /* packets that are not counted at the interface yet */
};

enum { SLOTS = 1024, MAX_UNCOUNTED = 63 };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, struct slot);
} slots SEC(".maps");

static __always_inline struct slot *slot_at(__u32 ifindex)
{
	__u32 index = ifindex % SLOTS;

	return bpf_map_lookup_elem(&slots, &index);
}

/* Whether a slot is that of an interface. */
static __always_inline int is_of(const struct slot *slot, __u32 ifindex, __u64 epoch_then)
{
	return slot->epoch == epoch_then && slot->ifindex == ifindex;
}

static __always_inline struct slot *find_slot(__u32 ifindex, __u64 epoch_then)
{
	struct slot *slot = slot_at(ifindex);

	return slot && is_of(slot, ifindex, epoch_then) ? slot : 0;
}

/* The slot of an interface that has no token for an unknown source. */
static __always_inline struct slot *find_flood(__u32 ifindex, __u64 epoch_then, __u64 now)
{
	struct slot *slot = find_slot(ifindex, epoch_then);

	return slot && !bucket_look(&slot->bucket, now, (struct rate){data_token_ns, data_full_ns})
		       ? slot
		       : 0;
}

/* Whether there is no token for an unknown source. A flood of them needs to find neither the
 * interface nor, once more, the address. Others only take tokens from the bucket, so that it is as
 * empty as its copy. The interface counts these packets later, up to MAX_UNCOUNTED at once. */
static __always_inline int is_refused(struct slot *slot, __u64 now)
{
	if (slot->refused == MAX_UNCOUNTED ||
	    bucket_look(&slot->bucket, now, (struct rate){data_token_ns, data_full_ns}))
		return 0;
	slot->refused++;
	return 1;
}

#endif
