//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */

/* The observer: learns from the packets that enter at an interface which addresses live behind it.
 *
 * It never changes or drops a packet: every one goes on to the next program, also when a header is
 * cut, or a map or the ring is full.
 */
#include "include/kernel.h"
#include "include/parse.h"
#include "include/table.h"

/* Enough for two tags, IPv6 with a few extension headers, and a solicitation with its options. */
enum { PULL_BYTES = 256 };

/* Returns 0 if the packet needs parse. */
static __always_inline int observe_ordinary(void *data, void *end, __u32 ifindex, __u32 vlan)
{
	struct claim claim;

	claim.address.interface = ifindex;
	claim.address.vlan = vlan;
	switch (parse_ordinary(data, end, &claim)) {
	case SENT_IPV4:
		saw_data(&claim, 0);
		return 1;
	case SENT_IPV6:
		saw_data(&claim, 1);
		return 1;
	case NOTHING:
		return 1;
	case NOT_ORDINARY:
		break;
	}
	return 0;
}

static __always_inline void observe_finding(struct finding *finding)
{
	if (finding->said)
		record_said(&finding->claim, finding->said, finding->to_us);
	if (finding->sent) {
		finding->claim.address.ip = finding->source;
		saw_data(&finding->claim, !is_ipv4(finding->source));
	}
}

/* For tcx and for cls_bpf: TC_ACT_UNSPEC, which is TCX_NEXT, passes the packet to the next program
 * or filter. Any other verdict would end the chain before the programs after us. */
SEC("tc")
int dupip_observer(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data;
	void *end = (void *)(long)skb->data_end;
	/* The kernel has moved the outer tag here before any tc program runs. */
	int tags = skb->vlan_present ? 1 : 0;
	__u32 vlan = tags ? add_tag(0, skb->vlan_tci) : 0;
	struct finding finding;
	struct packet packet;

	if (likely(observe_ordinary(data, end, skb->ifindex, vlan)))
		return TC_ACT_UNSPEC;

	packet = (struct packet){data, end, skb->ifindex, vlan, tags};
	packet.more = end - data < skb->len && end - data < PULL_BYTES;
	if (parse(&packet, &finding) == SHORT && packet.more) {
		/* A packet socket with a TX ring sends frames in which only the Ethernet header is
		 * linear. The pull moves bytes that the stack would move next, and changes none. */
		if (bpf_skb_pull_data(skb, skb->len < PULL_BYTES ? skb->len : PULL_BYTES))
			return TC_ACT_UNSPEC;
		packet.data = (void *)(long)skb->data;
		packet.end = (void *)(long)skb->data_end;
		packet.more = 0;
		parse(&packet, &finding);
	}
	observe_finding(&finding);
	return TC_ACT_UNSPEC;
}

/* Under XDP all headers are linear, and tags are in the packet. XDP cannot see a tag in the skb's
 * metadata, as a pod's VLAN devices set it. */
SEC("xdp")
int dupip_xdp(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;

	if (unlikely(!observe_ordinary(data, end, ctx->ingress_ifindex, 0))) {
		struct packet packet = {data, end, ctx->ingress_ifindex};
		struct finding finding;

		parse(&packet, &finding);
		observe_finding(&finding);
	}
	return XDP_PASS;
}

/* The kernel knows this string for dual GPL and BSD; nothing here needs a GPL-only helper. */
char observer_license[] SEC("license") = "Dual BSD/GPL";
