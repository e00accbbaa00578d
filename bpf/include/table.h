//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */

/* The observer's maps, and the rules by which a mapping becomes a record. */
#ifndef DUPIP_TABLE_H
#define DUPIP_TABLE_H

#include "kernel.h"
#include "config.h"
#include "record.h"
#include "bucket.h"
#include "cache.h"
#include "parse.h"

enum { SHARES = 32 };

/* One observed interface. It has separate buckets, so that a flood of sources from a pod delays
 * neither its announcements nor its answers nor other pods. Refreshes and changes of MAC of known
 * addresses have a bucket of their own, so that they delay no new address. Gratuitous packets have
 * one, because they are not limited by address, and others can make a pod advertise its address
 * unsolicited by checking whether it is free (RFC 4862 section 5.4.3).
 *
 * Answers to our own probes have one, too, because others can make a pod answer all the time. They
 * can even forge our MAC, so that the pod answers to us. Therefore each address has a share of that
 * bucket, chosen by a hash: a flood of answers for one address does not suppress those for
 * another. Answers that are delivered have two of the same kinds. */
struct interface {
	__u32 generation;
	__u32 unused;
	struct bucket data, announced, gratuitous, refreshes, answers, answers_to_us;
	struct bucket delivered, delivered_to_us;
	struct bucket shares[SHARES];
	__u64 refused_data, refused_announced, refused_answers, ring_full;
};

/* The interfaces we are attached to. User space adds an entry before it attaches a program. The
 * program ignores packets of other interfaces. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct interface);
} interfaces SEC(".maps");

/* When, and with which MAC, one kind of packet was last recorded. */
struct seen {
	__u64 mac;
	__u64 at_ns;
};

/* Announcements and data are separate: they may have different MACs (a bond, a proxy), and with one
 * entry for both each packet would be a change. */
struct known {
	struct seen data, announced;
	__u64 generation; /* of the interface; that ifindex may be another's next */
};

/* Every address recorded lately. LRU, so that it never refuses a new one. The buckets limit the new
 * entries of each interface, so that one interface cannot displace the entries of others. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct address);
	__type(value, struct known);
} addresses SEC(".maps");

/* Kinds of captured frames. Each has a budget of its own: answers to our probes prove the conflict,
 * and neither a pod that talks a lot nor others who ask it may use that up before. */
enum frame_kind { ANSWER_TO_US, OTHER_ANSWER, ANNOUNCEMENT, ORDINARY, FRAME_KINDS };

struct capture {
	__u32 left[FRAME_KINDS]; /* how many more are wanted */
	__u32 lost;		 /* the ring was full */
};

/* The addresses that are captured. Not preallocated, because mostly there are none. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, struct address);
	__type(value, struct capture);
} captures SEC(".maps");

/* Whether the packets of an address are captured. */
static __always_inline int is_captured(const struct address *address)
{
	return capturing && bpf_map_lookup_elem(&captures, address);
}

/* Relaxed, and without a result: an atomic add without fetch is all that arm64 has on 5.15. */
#define add(counter, n) ((void)__atomic_fetch_add(&(counter), (n), __ATOMIC_RELAXED))
#define count(counter)	add(counter, 1)

/* Whether there is nothing to record yet. Another MAC is recorded sooner than the same, but not at
 * once: with two that alternate (a bond, or an attack) each packet would be a change. */
static __always_inline int is_quiet(const struct seen *seen, __u64 mac, __u64 now)
{
	return seen->at_ns && now < seen->at_ns + (seen->mac == mac ? refresh_ns : change_ns);
}

static __always_inline struct interface *find_interface(const struct address *address)
{
	__u32 ifindex = address->place;

	return bpf_map_lookup_elem(&interfaces, &ifindex);
}

/* What is known of an address at this generation of its interface. */
static __always_inline struct known *find_known(const struct address *address, __u32 generation)
{
	struct known *known = bpf_map_lookup_elem(&addresses, address);

	if (known && known->generation != generation)
		known = 0;
	/* The verifier of Linux 5.10 must see that this is what is tested. */
	asm volatile("" : "+r"(known));
	return known;
}

/* Makes a slot that of an interface, unless another has packets to count there. The epoch is one
 * that was read before the interface was found. */
static __always_inline int take_slot(struct slot *slot, __u32 ifindex, __u64 epoch_then,
				     struct interface *interface)
{
	if (is_of(slot, ifindex, epoch_then)) {
		add(interface->refused_data, slot->refused);
		slot->refused = 0;
		return 1;
	}
	if (slot->epoch == epoch_then && slot->refused)
		return 0;
	/* The epoch last: an interrupt that reads a half-written slot finds it expired. */
	slot->epoch = 0;
	barrier();
	slot->ifindex = ifindex;
	slot->generation = interface->generation;
	slot->bucket.full_at = 0;
	slot->refused = 0;
	barrier();
	slot->epoch = epoch_then;
	return 1;
}

/* Reserves a record if the bucket has a token for it. It takes the token, and the caller stores the
 * address, only if the ring has room; otherwise the record would be lost and not only delayed. The
 * caller stores the address before it sends the record, so that the reader of the record finds the
 * address stored. */
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

/* The same for an address that is new for its kind of packet, changed or due again. */
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

/* The slow path of saw_data: mostly data that has to be recorded.
 *
 * This and record_said are not static, so that the verifier checks each of them once, and not once
 * for every path to a call. Such functions take numbers: they can be given memory since Linux 5.12
 * only. */
__noinline int record_data(__u64 high, __u64 low, __u64 place, __u64 mac)
{
	struct mapping mapping = {{{high, low}, place}, mac};
	__u64 epoch_then = epoch, now = coarse_now();
	struct digest digest = digest_of(&mapping.address, mac, epoch_then);
	struct line_set *set = find_lines(digest);
	struct slot *slot = slot_at(place);
	struct interface *interface;
	struct known fresh = {};
	struct known *known;
	struct record *record;
	__u64 seen = now;
	int has_slot;

	if (!set || !slot || !ip_counts(mapping.address.ip))
		return 0;
	interface = find_interface(&mapping.address);
	if (!interface)
		return 0;
	has_slot = take_slot(slot, place, epoch_then, interface);
	known = find_known(&mapping.address, interface->generation);
	if (known && is_quiet(&known->data, mac, now)) {
		if (known->data.mac != mac)
			return 0;
		seen = known->data.at_ns;
	} else {
		record = make_due_record(known ? &known->data : 0, interface, &interface->data,
					 (struct rate){data_token_ns, data_full_ns}, now,
					 &interface->refused_data);
		if (!record) {
			if (has_slot)
				slot->bucket = interface->data;
			flooded_until = now + data_token_ns;
			return 0;
		}
		fresh.data = (struct seen){mac, now};
		if (known) {
			if (known->data.mac != mac)
				clear_line(set, digest_of(&mapping.address, known->data.mac,
							  epoch_then));
			known->data = fresh.data;
		} else {
			fresh.generation = interface->generation;
			bpf_map_update_elem(&addresses, &mapping.address, &fresh, BPF_ANY);
		}
		send_record(record, &mapping, interface->generation, KIND_DATA, 0);
	}
	if (!is_captured(&mapping.address))
		fill_line(set, digest, epoch_then, now, seen + refresh_ns);
	return 0;
}

static __always_inline void record_announcement(struct mapping *mapping,
						struct interface *interface, __u64 to)
{
	__u64 now = coarse_now();
	struct known fresh = {{}, {mapping->mac, now}, interface->generation};
	struct known *known = find_known(&mapping->address, interface->generation);
	struct record *record;

	if (known && is_quiet(&known->announced, mapping->mac, now))
		return;
	record = make_due_record(known ? &known->announced : 0, interface, &interface->announced,
				 (struct rate){announced_token_ns, announced_full_ns}, now,
				 &interface->refused_announced);
	if (!record)
		return;
	if (known)
		known->announced = fresh.announced;
	else
		bpf_map_update_elem(&addresses, &mapping->address, &fresh, BPF_ANY);
	send_record(record, mapping, interface->generation, KIND_ANNOUNCED, to);
}

/* Records an answer even if the address is known: verification needs an answer that comes right
 * after a gratuitous ARP. The coarse clock is enough for
 * the rate: what a tick is too late for comes with the next one. */
static __always_inline void record_answer(struct mapping *mapping, struct interface *interface,
					  __u64 to)
{
	struct rate rate = {answer_token_ns, answer_full_ns};
	__u64 now = coarse_now();
	struct bucket *bucket = &interface->answers, *share = 0;
	__u64 hash, full_at = 0;
	struct record *record;

	if (is_ours(to)) {
		hash = mapping->address.ip.high ^ mapping->address.ip.low ^
		       mapping->address.place >> 32;
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
	send_record(record, mapping, interface->generation, KIND_ANSWER, to);
}

/* Records what ARP or NDP said about an address. The upper two bytes of mac are the kind. */
__noinline int record_said(__u64 high, __u64 low, __u64 place, __u64 mac, __u64 to)
{
	struct mapping mapping = {{{high, low}, place}, mac & MAC_BITS};
	enum kind kind = mac >> KIND_AT;
	struct interface *interface;
	struct bucket *bucket;
	struct record *record;

	if (!ip_counts(mapping.address.ip))
		return 0;
	interface = find_interface(&mapping.address);
	if (!interface)
		return 0;

	if (kind == KIND_ANNOUNCED) {
		record_announcement(&mapping, interface, to);
	} else if (kind == KIND_ANSWER) {
		record_answer(&mapping, interface, to);
	} else {
		/* Duplicate address detection is rare and short, and a gratuitous packet may be
		 * the only sign of a holder, also of an address that was announced before: so the
		 * address is neither looked up nor stored. */
		bucket = kind == KIND_GRATUITOUS ? &interface->gratuitous : &interface->announced;
		record = make_record(interface, bucket,
				     (struct rate){announced_token_ns, announced_full_ns},
				     coarse_now(), &interface->refused_announced);
		if (record)
			send_record(record, &mapping, interface->generation, kind, to);
	}
	return 0;
}

/* The fast path: an IPv4 or IPv6 packet with this source.
 *
 * A slot has the right generation, so that an address without a line needs one lookup in the hash
 * of addresses and none in that of interfaces.
 *
 * Returns 0 if the address has a line: then it is not captured, and the packet is done. */
static __always_inline int saw_data(struct mapping *mapping)
{
	__u32 ifindex = mapping->address.place;
	__u64 epoch_then = epoch, now = coarse_now();
	struct line_set *set = 0;
	struct slot *slot = 0;
	struct digest digest;
	struct known *known;

	/* In a flood the lines are not in the CPU's cache: to look one up would take as long as
	 * all else. */
	if (unlikely(now < flooded_until))
		slot = find_flood(ifindex, epoch_then, now);
	if (likely(!slot)) {
		digest = digest_of(&mapping->address, mapping->mac, epoch_then);
		set = find_lines(digest);
		if (!set || has_line(set, digest, now))
			return 0;
		slot = find_slot(ifindex, epoch_then);
	}
	if (slot) {
		known = find_known(&mapping->address, slot->generation);
		if (known ? is_quiet(&known->data, mapping->mac, now) &&
				    (!set || known->data.mac != mapping->mac)
			  : !ip_counts(mapping->address.ip) || is_refused(slot, now))
			return 1;
	}
	record_data(mapping->address.ip.high, mapping->address.ip.low, mapping->address.place,
		    mapping->mac);
	return 1;
}

static __always_inline void observe_finding(struct finding *finding)
{
	struct mapping *mapping = &finding->mapping;

	if (finding->said)
		record_said(mapping->address.ip.high, mapping->address.ip.low,
			    mapping->address.place, mapping->mac | (__u64)finding->said << KIND_AT,
			    finding->to);
	if (finding->sent) {
		mapping->address.ip = finding->source;
		saw_data(mapping);
	}
}

#endif
