//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */

/* What the observer remembers, and the rules by which a claim becomes a record. */
#ifndef DUPIP_TABLE_H
#define DUPIP_TABLE_H

#include "kernel.h"
#include "config.h"
#include "record.h"
#include "bucket.h"

enum { SHARES = 32 };

/* One observed interface. The buckets are apart, so that a pod that sprays sources delays neither
 * its own announcements nor its answers, and no other pod at all; and so that the addresses that
 * are known, whose refreshes and changes of MAC have a bucket of their own, delay no new one.
 *
 * Answers to our own solicitations have theirs, too: others may make a pod answer as often as they
 * like. They can even forge our MAC, and make it answer to us. So each address has a share of that
 * bucket, found by a hash: whoever makes a pod answer for one of its addresses all the time does
 * not keep from us what it answers for another. */
struct interface {
	__u32 generation;
	__u32 unused;
	struct bucket data, announced, refreshes, answers, answers_to_us;
	struct bucket shares[SHARES];
	__u64 refused_data, refused_announced, refused_answers, ring_full;
};

/* The interfaces we are attached to. Written by user space before a program is attached; a packet
 * of an interface that is not here is not looked at. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct interface);
} interfaces SEC(".maps");

/* When, and with which MAC, one way of speaking was last recorded. */
struct seen {
	__u64 mac;
	__u64 at_ns;
};

/* Announcements and data are apart: they may well come with different MACs (a bond, a proxy), and
 * sharing one would make each packet look like a change. */
struct known {
	struct seen data, announced;
};

/* Every address recorded lately. LRU, so that it never refuses a new one; who may put an entry in
 * is limited per interface by the buckets, so nobody can push out the entries of the others. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct address);
	__type(value, struct known);
} addresses SEC(".maps");

/* A data source of one interface and family. */
struct cached {
	struct claim claim;
	__u64 until_ns;
	__u32 epoch;
	__u32 unused;
};

enum { CACHE_SLOTS = 2048 };

/* In front of the hash maps, direct mapped by ifindex and family: most interfaces have one address
 * of each, and then a packet costs one array lookup and no hashing. Four times as many interfaces
 * fit as a node has pods: two busy ones in one slot would take turns in pushing each other out. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, CACHE_SLOTS);
	__type(key, __u32);
	__type(value, struct cached);
} cache SEC(".maps");

/* Relaxed, and without a result: an atomic add without fetch is all that arm64 has on 5.15. */
#define count(counter) ((void)__atomic_fetch_add(&(counter), 1, __ATOMIC_RELAXED))

/* Whether there is nothing to record yet. Another MAC is worth a record sooner than the same, but
 * not at once: two that take turns (a bond, or malice) would make each packet a change. */
static __always_inline int is_quiet(const struct seen *seen, __u64 mac, __u64 now)
{
	return seen->at_ns && now < seen->at_ns + (seen->mac == mac ? refresh_ns : change_ns);
}

/* Finds the interface of a claim, and completes the claim with its generation. */
static __always_inline struct interface *find_interface(struct claim *claim)
{
	__u32 ifindex = claim->address.interface;
	struct interface *interface = bpf_map_lookup_elem(&interfaces, &ifindex);

	if (interface)
		with_generation(claim, interface->generation);
	return interface;
}

/* Makes room for a record if the bucket has a token for it. That is taken, and an address
 * remembered by the caller, only when there is room in the ring; otherwise a full ring would cost
 * the record and not delay it. The caller remembers before it sends, so that whoever has read
 * the record finds the address remembered. */
static __always_inline struct record *make_record(struct interface *interface,
						  struct bucket *bucket, struct rate rate,
						  __u64 now, __u64 *refused)
{
	__u64 full_at = bucket_look(bucket, now, rate);
	struct record *record;

	if (!full_at) {
		count(*refused);
		return 0;
	}
	record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
	if (!record) {
		count(interface->ring_full);
		return 0;
	}
	bucket_take(bucket, full_at);
	return record;
}

/* The same for an address of which one way of speaking says something new, or is due again. */
static __always_inline struct record *make_due_record(const struct seen *seen,
						      struct interface *interface,
						      struct bucket *bucket, struct rate rate,
						      __u64 now, __u64 *refused)
{
	if (seen && seen->at_ns) {
		bucket = &interface->refreshes;
		rate = (struct rate){refresh_token_ns, refresh_full_ns};
	}
	return make_record(interface, bucket, rate, now, refused);
}

/* What saw_data leaves: mostly data that has to be recorded.
 *
 * This and record_said are not static, so that the verifier looks at each of them once, and not
 * once for every way that leads there. What their arguments point to is then memory of any kind to
 * it, and before Linux 6.2 it takes no key of a map from there: both use a copy. */
__noinline int record_data(struct claim *claim, struct cached *slot, __u64 now)
{
	__u32 now_epoch = epoch; /* before the interface is looked up */
	struct interface *interface;
	struct known fresh = {};
	struct address address;
	struct known *known;
	struct record *record;

	if (!claim || !slot || !ip_counts(claim->address.ip))
		return 0;
	interface = find_interface(claim);
	if (!interface)
		return 0;
	address = claim->address;
	known = bpf_map_lookup_elem(&addresses, &address);
	if (known && is_quiet(&known->data, claim->mac, now)) {
		if (known->data.mac != claim->mac)
			return 0;
		now = known->data.at_ns;
	} else {
		record = make_due_record(known ? &known->data : 0, interface, &interface->data,
					 (struct rate){data_token_ns, data_full_ns}, now,
					 &interface->refused_data);
		if (!record)
			return 0;
		fresh.data = (struct seen){claim->mac, now};
		if (known)
			known->data = fresh.data;
		else
			bpf_map_update_elem(&addresses, &address, &fresh, BPF_ANY);
		send_record(record, claim, KIND_DATA);
	}

	/* until_ns goes last: an interrupt that reads a half-written slot finds it expired. */
	slot->until_ns = 0;
	barrier();
	slot->claim = *claim;
	slot->epoch = now_epoch;
	barrier();
	slot->until_ns = now + refresh_ns;
	return 0;
}

static __always_inline void record_announcement(struct claim *claim, struct interface *interface)
{
	__u64 now = bpf_ktime_get_coarse_ns();
	struct known fresh = {.announced = {claim->mac, now}};
	struct address address = claim->address;
	struct known *known = bpf_map_lookup_elem(&addresses, &address);
	struct record *record;

	if (known && is_quiet(&known->announced, claim->mac, now))
		return;
	record = make_due_record(known ? &known->announced : 0, interface, &interface->announced,
				 (struct rate){announced_token_ns, announced_full_ns}, now,
				 &interface->refused_announced);
	if (!record)
		return;
	if (known)
		known->announced = fresh.announced;
	else
		bpf_map_update_elem(&addresses, &address, &fresh, BPF_ANY);
	send_record(record, claim, KIND_ANNOUNCED);
}

/* An answer: never held back because the address is known, since verification lives on the one
 * that comes right after a gratuitous ARP. The fine clock, because a tick of the coarse one is as
 * long as two answers. */
static __always_inline void record_answer(struct claim *claim, struct interface *interface,
					  int to_us)
{
	struct rate rate = {answer_token_ns, answer_full_ns};
	__u64 now = bpf_ktime_get_ns();
	struct bucket *bucket = &interface->answers, *share = 0;
	__u64 hash, full_at = 0;
	struct record *record;

	if (to_us) {
		hash = claim->address.ip.high ^ claim->address.ip.low ^ claim->address.vlan;
		hash = (hash ^ hash >> 32) * 0x9e3779b97f4a7c15ULL;
		bucket = &interface->answers_to_us;
		share = &interface->shares[hash >> 32 & (SHARES - 1)];
		full_at = bucket_look(share, now, (struct rate){share_token_ns, share_full_ns});
		if (!full_at) {
			count(interface->refused_answers);
			return;
		}
	}
	record = make_record(interface, bucket, rate, now, &interface->refused_answers);
	if (!record)
		return;
	if (share)
		bucket_take(share, full_at);
	send_record(record, claim, KIND_ANSWER);
}

/* What was said about an address in words, by ARP or NDP. */
__noinline int record_said(struct claim *claim, enum kind kind, int to_us)
{
	struct interface *interface;
	struct record *record;

	if (!claim || !ip_counts(claim->address.ip))
		return 0;
	interface = find_interface(claim);
	if (!interface)
		return 0;

	if (kind == KIND_ANNOUNCED) {
		record_announcement(claim, interface);
	} else if (kind == KIND_TENTATIVE) {
		/* Somebody asks whether the address is free before it takes it. Rare and
		 * short-lived, so it is not remembered. */
		record = make_record(interface, &interface->announced,
				     (struct rate){announced_token_ns, announced_full_ns},
				     bpf_ktime_get_coarse_ns(), &interface->refused_announced);
		if (record)
			send_record(record, claim, kind);
	} else {
		record_answer(claim, interface, to_us);
	}
	return 0;
}

/* A packet of IPv4 or IPv6 with this source: the path that every packet takes.
 *
 * A slot stays with its address until that one is due again, also while others of the interface are
 * seen: of two that take turns, one is quick then, where replacing each other would make both slow.
 * A slot of the right interface and epoch is good for its generation, so that the others need the
 * hash of the addresses and not that of the interfaces. */
static __always_inline void saw_data(struct claim *claim, int is_ipv6)
{
	__u32 ifindex = claim->address.interface;
	__u32 index = (ifindex * 2 + is_ipv6) % CACHE_SLOTS;
	struct cached *slot = bpf_map_lookup_elem(&cache, &index);
	__u64 now = bpf_ktime_get_coarse_ns();

	if (slot && (__u32)slot->claim.address.interface == ifindex && slot->epoch == epoch &&
	    now < slot->until_ns) {
		struct known *known;

		if (slot->claim.address.ip.low == claim->address.ip.low &&
		    slot->claim.address.ip.high == claim->address.ip.high &&
		    slot->claim.address.vlan == claim->address.vlan &&
		    slot->claim.mac == claim->mac)
			return;
		claim->address.interface = slot->claim.address.interface;
		known = bpf_map_lookup_elem(&addresses, &claim->address);
		if (known && is_quiet(&known->data, claim->mac, now))
			return;
	}
	record_data(claim, slot, now);
}

#endif
