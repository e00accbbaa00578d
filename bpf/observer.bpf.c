//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */

/* The observer: learns from the packets that enter at an interface, or leave by one inside a pod,
 * which addresses live behind it.
 *
 * It never changes or drops a packet: every one goes on to the next program, also when a header is
 * cut, or a map or the ring is full.
 */
#include "include/kernel.h"
#include "include/capture.h"
#include "include/delivered.h"
#include "include/early.h"
#include "include/inside.h"
#include "include/ndp.h"
#include "include/netkit.h"
#include "include/parse.h"
#include "include/table.h"

enum left { NOTHING_LEFT, TO_CAPTURE, TO_PARSE };

/* Returns what is left to do with the packet. */
static __always_inline enum left observe_ordinary(void *data, void *end, __u32 ifindex, __u32 vlan,
						  struct mapping *mapping)
{
	mapping->address.place = place_at(ifindex, vlan);
	switch (parse_ordinary(data, end, mapping)) {
	case SENT_IPV4:
		return saw_data(mapping) ? TO_CAPTURE : NOTHING_LEFT;
	case SENT_IPV6:
		return saw_data(mapping) ? TO_CAPTURE : NOTHING_LEFT;
	case NOTHING:
		return NOTHING_LEFT;
	case NOT_ORDINARY:
		break;
	}
	return TO_PARSE;
}

/* For tcx and for cls_bpf: TC_ACT_UNSPEC, which is TCX_NEXT, passes the packet to the next program
 * or filter. Any other verdict would end the chain before the programs after us. */
static __always_inline int observe_skb(struct __sk_buff *skb, __u32 ifindex)
{
	void *data = (void *)(long)skb->data;
	void *end = (void *)(long)skb->data_end;
	struct packet packet = {data, end, ifindex};
	enum verdict verdict;
	struct mapping mapping;
	struct finding finding;
	enum left left;

	take_tag(skb, &packet);
	left = observe_ordinary(data, end, ifindex, packet.vlan, &mapping);
	if (likely(left == NOTHING_LEFT))
		return TC_ACT_UNSPEC;
	if (left == TO_CAPTURE) {
		if (likely(!capturing))
			return TC_ACT_UNSPEC;
		finding = (struct finding){.mapping = mapping};
		goto capture;
	}

	verdict = parse(&packet, &finding);
	if (verdict == SHORT) {
		/* A packet socket with a TX ring sends frames in which only the Ethernet header is
		 * linear. The pull moves bytes that the stack would move next, and changes none. */
		if (bpf_skb_pull_data(skb, skb->len < PULL_BYTES ? skb->len : PULL_BYTES))
			return TC_ACT_UNSPEC;
		packet.data = (void *)(long)skb->data;
		packet.end = (void *)(long)skb->data_end;
		verdict = parse(&packet, &finding);
	}
	if (verdict == PERHAPS_NDP)
		load_ndp(skb, &finding);
capture:
	if (unlikely(capturing))
		capture_skb(skb, &finding);
	observe_finding(&finding);
	return TC_ACT_UNSPEC;
}

SEC("tc")
int dupip_observer(struct __sk_buff *skb)
{
	return observe_skb(skb, skb->ifindex);
}

/* At the egress of a device inside another netns. It runs under tcx only, and is loaded for the
 * first such device only, because it needs the types of the kernel. */
SEC("tc")
int dupip_inside(struct __sk_buff *skb)
{
	__u32 number = find_number(skb);

	return likely(number) ? observe_skb(skb, number) : TC_ACT_UNSPEC;
}

/* Where the other end of a netkit pair sends. Needs the types of the kernel, too. */
SEC("tc")
int dupip_netkit(struct __sk_buff *skb)
{
	observe_skb(skb, skb->ifindex);
	return netkit_verdict(skb);
}

/* Under XDP all headers are linear, and tags are in the packet. XDP cannot see a tag in the skb's
 * metadata, as a pod's VLAN devices set it. */
SEC("xdp")
int dupip_xdp(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct ipv6_packet *ipv6;
	struct mapping mapping;
	struct finding finding;
	struct packet packet;
	enum left left;

	left = observe_ordinary(data, end, ctx->ingress_ifindex, 0, &mapping);
	if (likely(left == NOTHING_LEFT))
		return XDP_PASS;
	if (left == TO_CAPTURE) {
		if (likely(!capturing))
			return XDP_PASS;
		finding = (struct finding){.mapping = mapping};
		goto capture;
	}

	packet = (struct packet){data, end, ctx->ingress_ifindex};
	if (parse(&packet, &finding) == PERHAPS_NDP && (ipv6 = the_ipv6_packet())) {
		__u64 *from = data + (finding.ipv6_at & 31); /* it is 22 at most */

		ipv6->size = end - (void *)from;
		for (int i = 0; i < IPV6_BYTES / 8 && (void *)(from + i + 1) <= end; i++)
			((__u64 *)ipv6->bytes)[i] = from[i];
		find_ndp(ipv6, &finding);
	}
capture:
	if (unlikely(capturing))
		capture_xdp(ctx, &finding);
	observe_finding(&finding);
	return XDP_PASS;
}

/* The kernel knows this string for dual GPL and BSD. Only the kfunc of dupip_inside needs the GPL.
 */
char observer_license[] SEC("license") = "Dual BSD/GPL";
