//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */

/* What the observer remembers, and the rules by which a claim becomes a record. */
#ifndef DUPIP_TABLE_H
#define DUPIP_TABLE_H

#include "kernel.h"
#include "config.h"
#include "record.h"
#include "bucket.h"

/* One observed interface. The buckets are apart, so that a pod that sprays sources delays neither
 * its own announcements nor its answers, and no other pod at all. Answers to our own solicitations
 * have one of theirs: others may make a pod answer as often as they like. */
struct interface {
	__u32 generation;
	__u32 unused;
	struct bucket data, announced, answers, answers_to_us;
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

static __always_inline int is_fresh(const struct seen *seen, __u64 mac, __u64 now)
{
	return seen->mac == mac && now < seen->at_ns + refresh_ns;
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

/* Sends a record if it needs no token or the bucket has one. A token is taken, and an address
 * remembered by the caller, only once the record is in the ring; otherwise a full ring would cost
 * the record and not delay it. Returns whether the record was sent. */
static __always_inline int record(const struct claim *claim, enum kind kind,
				  struct interface *interface, struct bucket *bucket,
				  int needs_token, struct rate rate, __u64 now, __u64 *refused)
{
	__u64 full_at = 0;

	if (needs_token) {
		full_at = bucket_look(bucket, now, rate);
		if (!full_at) {
			count(*refused);
			return 0;
		}
	}
	if (!send_record(claim, kind)) {
		count(interface->ring_full);
		return 0;
	}
	if (needs_token)
		bucket_take(bucket, full_at);
	return 1;
}

/* What saw_data leaves: mostly data that has to be recorded. A new address needs a token, and so
 * does a new MAC; the same again after the refresh time does not.
 *
 * This and record_said are not static, so that the verifier looks at each of them once, and not
 * once for every way that leads there. */
__noinline int record_data(struct claim *claim, struct cached *slot, __u64 now)
{
	struct rate rate = {data_token_ns, data_full_ns};
	__u32 now_epoch = epoch; /* before the interface is looked up */
	struct interface *interface;
	struct known fresh = {};
	struct known *known;

	if (!claim || !slot || !ip_counts(claim->address.ip))
		return 0;
	interface = find_interface(claim);
	if (!interface)
		return 0;
	known = bpf_map_lookup_elem(&addresses, &claim->address);
	if (known && is_fresh(&known->data, claim->mac, now)) {
		now = known->data.at_ns;
	} else {
		if (!record(claim, KIND_DATA, interface, &interface->data,
			    !known || known->data.mac != claim->mac, rate, now,
			    &interface->refused_data))
			return 0;
		fresh.data = (struct seen){claim->mac, now};
		if (known)
			known->data = fresh.data;
		else
			bpf_map_update_elem(&addresses, &claim->address, &fresh, BPF_ANY);
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
	struct rate rate = {announced_token_ns, announced_full_ns};
	__u64 now = bpf_ktime_get_coarse_ns();
	struct known fresh = {.announced = {claim->mac, now}};
	struct known *known = bpf_map_lookup_elem(&addresses, &claim->address);

	if (known && is_fresh(&known->announced, claim->mac, now))
		return;
	if (!record(claim, KIND_ANNOUNCED, interface, &interface->announced,
		    !known || known->announced.mac != claim->mac, rate, now,
		    &interface->refused_announced))
		return;
	if (known)
		known->announced = fresh.announced;
	else
		bpf_map_update_elem(&addresses, &claim->address, &fresh, BPF_ANY);
}

/* What was said about an address in words, by ARP or NDP. */
__noinline int record_said(struct claim *claim, enum kind kind, int to_us)
{
	struct interface *interface;

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
		record(claim, kind, interface, &interface->announced, 1,
		       (struct rate){announced_token_ns, announced_full_ns},
		       bpf_ktime_get_coarse_ns(), &interface->refused_announced);
	} else {
		/* An answer, perhaps to us: never held back because the address is known, since
		 * verification lives on the answer that comes right after a gratuitous ARP. The
		 * fine clock, because a tick of the coarse one is as long as two answers. */
		record(claim, KIND_ANSWER, interface,
		       to_us ? &interface->answers_to_us : &interface->answers, 1,
		       (struct rate){answer_token_ns, answer_full_ns}, bpf_ktime_get_ns(),
		       &interface->refused_answers);
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
		if (known && is_fresh(&known->data, claim->mac, now))
			return;
	}
	record_data(claim, slot, now);
}

#endif
