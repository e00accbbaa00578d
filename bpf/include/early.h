//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */

/* Observes interfaces that no program is attached to yet, or any more. */
#ifndef DUPIP_EARLY_H
#define DUPIP_EARLY_H

#include "kernel.h"
#include "ndp.h"
#include "parse.h"
#include "table.h"

/* A filter of a packet socket on all devices of the netns; it keeps nothing for the socket. It runs
 * before the programs of tc, and sees the same packets. Its type has no access to the packet, only
 * a copy of the part that has the headers. An interface that has its program already is observed
 * twice: then an address is known, and an answer is recorded twice and takes two tokens. */
SEC("socket")
int dupip_early(struct __sk_buff *skb)
{
	__u64 size = skb->len < PULL_BYTES ? skb->len : PULL_BYTES;
	__u32 ifindex = skb->ifindex;
	struct ipv6_packet *copy;
	struct finding finding;
	struct packet packet;

	/* Most packets of a node are of other devices. */
	if (!bpf_map_lookup_elem(&interfaces, &ifindex))
		return 0;
	copy = the_ipv6_packet(); /* parse is done with it before load_ndp uses it */
	if (!copy || size > PULL_BYTES)
		return 0;
	asm volatile("" : "+r"(size)); /* the verifier must see both limits, apart */
	if (size < sizeof(struct eth_header) || bpf_skb_load_bytes(skb, 0, copy->bytes, size))
		return 0;
	packet = (struct packet){copy->bytes, copy->bytes + size, ifindex};
	take_tag(skb, &packet);
	if (parse(&packet, &finding) == PERHAPS_NDP)
		load_ndp(skb, &finding);
	observe_finding(&finding);
	return 0;
}

#endif
