//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */

/* Records the answers and gratuitous packets that are delivered to an interface which sends back
 * what it gets: what comes from there may be one of these. */
#ifndef DUPIP_DELIVERED_H
#define DUPIP_DELIVERED_H

#include "kernel.h"
#include "table.h"

static __always_inline int has(struct __sk_buff *skb, __u32 offset, __u16 want, __u32 size)
{
	__u16 found = 0;

	return !bpf_skb_load_bytes(skb, offset, &found, size) && found == want;
}

/* A filter of a packet socket on the interface; it keeps nothing for the socket. The kernel has the
 * tag of a packet to a veth in its metadata. Unlike the observer it sees no answer behind a second
 * tag or extension headers: no neighbour sends such. */
SEC("socket")
int dupip_delivered(struct __sk_buff *skb)
{
	struct mapping mapping = {{{0, 0}, place_at(skb->ifindex, 0)}};
	__u32 mac_at = SOURCE_AT, sender = 0, target = 0;
	struct interface *interface;
	struct bucket *bucket;
	struct record *record;
	__u64 to = 0;

	if (skb->pkt_type != PACKET_OUTGOING)
		return 0;
	if (skb->protocol == ETH_P_ARP) {
		if (bpf_skb_load_bytes(skb, ARP_SENDER_AT, &sender, sizeof(sender)) ||
		    bpf_skb_load_bytes(skb, ARP_TARGET_AT, &target, sizeof(target)) ||
		    (sender != target && !has(skb, ARP_OPERATION_AT, be16(2), 2)))
			return 0;
		mapping.address.ip = ipv4_mapped(sender);
		mac_at = ARP_MAC_AT;
	} else if (skb->protocol != ETH_P_IPV6 || !has(skb, IPV6_NEXT_AT, IPV6_ICMP, 1) ||
		   !has(skb, NDP_TYPE_AT, NEIGHBOUR_ADVERTISEMENT, 1) ||
		   bpf_skb_load_bytes(skb, NDP_TARGET_AT, &mapping.address.ip,
				      sizeof(mapping.address.ip))) {
		return 0;
	}
	if (bpf_skb_load_bytes(skb, 0, &to, 6) || bpf_skb_load_bytes(skb, mac_at, &mapping.mac, 6))
		return 0;
	interface = find_interface(&mapping.address);
	if (!interface)
		return 0;
	bucket = is_ours(to) ? &interface->delivered_to_us : &interface->delivered;
	record = make_record(interface, bucket, (struct rate){answer_token_ns, answer_full_ns},
			     bpf_ktime_get_ns(), &interface->refused_answers);
	if (record)
		send_record(record, &mapping, interface->generation, KIND_DELIVERED, to);
	return 0;
}

#endif
