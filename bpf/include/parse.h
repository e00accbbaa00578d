//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */

/* Parses packets. */
#ifndef DUPIP_PARSE_H
#define DUPIP_PARSE_H

#include "kernel.h"
#include "address.h"
#include "config.h"
#include "record.h"

struct packet {
	void *data, *end;
	__u32 ifindex;
	__u32 vlan; /* what the metadata says; the parser adds what the packet says */
	__u64 tags; /* how many tags the metadata holds */
};

/* What a packet says. An NDP packet says two things: what it is about, and its source. */
struct finding {
	struct mapping mapping;
	struct ip source;
	__u64 to; /* the MAC that the packet was sent to */
	int said; /* one of enum kind for the mapping, or 0 */
	int sent; /* the source counts */
	__u32 ipv6_at;
	__u32 unused;
};

enum verdict {
	DONE,
	SHORT,	     /* a header is not in the linear part of the packet */
	PERHAPS_NDP, /* at ipv6_at begins a packet for parse_ndp */
};

/* PULL_BYTES are enough for two tags and the header of IPv6 or ARP. */
enum { MAX_TAGS = 2, PULL_BYTES = 64 };

/* Wide loads from packets are not aligned (an IPv6 source sits at byte 22). The kernels of amd64
 * and arm64 allow that, and so does their verifier. */
static __always_inline __u64 load_mac(const __u8 *mac)
{
	return *(__u32 *)mac | (__u64) * (__u16 *)(mac + 4) << 32;
}

static __always_inline struct ip load_ipv6(const void *ip)
{
	return (struct ip){((__u64 *)ip)[0], ((__u64 *)ip)[1]};
}

/* VID 0 is a priority tag: the packet is untagged. */
static __always_inline __u32 add_tag(__u32 vlan, __u16 tci)
{
	__u32 vid = tci & VLAN_VID;

	return vlan ? vlan | vid << 16 : vid;
}

static __always_inline int is_tag(__u16 type)
{
	return type == ETH_P_8021Q || type == ETH_P_8021AD;
}

/* The kernel has moved the outer tag of a packet that enters here before any tc program runs. One
 * that leaves has here what a VLAN device set, and in it what its sender wrote. */
static __always_inline void take_tag(const struct __sk_buff *skb, struct packet *packet)
{
	packet->tags = skb->vlan_present ? 1 : 0;
	packet->vlan = packet->tags ? add_tag(0, skb->vlan_tci) : 0;
}

static __always_inline int is_ipv4_header(const struct ipv4_header *ip)
{
	return ip->version_and_size >= 0x45 && ip->version_and_size <= 0x4f;
}

static __always_inline int is_extension(__u8 next)
{
	const __u64 extensions =
		1ULL << IPV6_HOP_BY_HOP | 1ULL << IPV6_ROUTING | 1ULL << IPV6_DESTINATION;

	return next < 64 && (extensions >> next & 1);
}

enum ordinary { NOT_ORDINARY, NOTHING, SENT_IPV4, SENT_IPV6 };

/* The fast path for the ordinary packet: no tag in it, IPv4 or IPv6, and certainly no NDP. All
 * other packets go to parse. */
static __always_inline enum ordinary parse_ordinary(void *data, void *end, struct mapping *mapping)
{
	struct eth_header *eth = data;
	void *at = eth + 1;

	if (at > end)
		return NOT_ORDINARY;
	mapping->mac = load_mac(eth->source);
	if (eth->type == ETH_P_IP) {
		struct ipv4_header *ip = at;

		if ((void *)(ip + 1) > end)
			return NOT_ORDINARY;
		mapping->address.ip = ipv4_mapped(ip->source);
		return is_ipv4_header(ip) ? SENT_IPV4 : NOTHING;
	}
	if (eth->type == ETH_P_IPV6) {
		struct ipv6_header *ip = at;

		if ((void *)(ip + 1) > end || ip->next == IPV6_ICMP || is_extension(ip->next))
			return NOT_ORDINARY;
		mapping->address.ip = load_ipv6(ip->source);
		return ip->version >> 4 == 6 && !is_ipv4(mapping->address.ip) ? SENT_IPV6 : NOTHING;
	}
	return NOT_ORDINARY;
}

/* Packets that Linux accepts on an Ethernet device (arp_process in net/ipv4/arp.c); the hardware
 * type may also be IEEE 802. Lax on purpose: Linux ignores those about a loopback or multicast
 * target. A pod can announce the same address with another target. */
static __always_inline enum verdict parse_arp(const struct packet *packet, __u32 at,
					      struct finding *finding)
{
	struct arp_packet *arp = packet->data + at;
	__u32 sender, target;

	if ((void *)(arp + 1) > packet->end)
		return SHORT;
	if ((arp->hardware != be16(1) && arp->hardware != be16(6)) || arp->protocol != ETH_P_IP ||
	    arp->hardware_size != 6 || arp->protocol_size != 4)
		return DONE;
	sender = *(__u32 *)arp->sender_ip;
	target = *(__u32 *)arp->target_ip;
	finding->mapping.mac = load_mac(arp->sender_mac);
	finding->mapping.address.ip = ipv4_mapped(sender);
	if (arp->operation == be16(2)) {
		finding->said = sender == target ? KIND_GRATUITOUS : KIND_ANSWER;
	} else if (arp->operation == be16(1) && sender) {
		finding->said = sender == target ? KIND_GRATUITOUS : KIND_ANNOUNCED;
	} else if (arp->operation == be16(1)) {
		/* An ARP probe, RFC 5227 section 2.1.1. */
		finding->mapping.address.ip = ipv4_mapped(target);
		finding->said = KIND_TENTATIVE;
	}
	return DONE;
}

static __always_inline enum verdict parse_ipv6(const struct packet *packet, __u32 at,
					       struct finding *finding)
{
	struct ipv6_header *ip = packet->data + at;

	if ((void *)(ip + 1) > packet->end)
		return SHORT;
	if (ip->version >> 4 != 6)
		return DONE;
	finding->source = load_ipv6(ip->source);
	finding->sent = !is_ipv4(finding->source);
	finding->ipv6_at = at;
	return ip->hop_limit == 255 && (ip->next == IPV6_ICMP || is_extension(ip->next))
		       ? PERHAPS_NDP
		       : DONE;
}

/* Parses what parse_ordinary does not. After SHORT it may be called again with more of the
 * packet. */
static __noinline enum verdict parse(const struct packet *packet, struct finding *finding)
{
	struct eth_header *eth = packet->data;
	__u32 vlan = packet->vlan, at = sizeof(*eth);
	__u16 type;

	*finding = (struct finding){};
	if ((void *)(eth + 1) > packet->end)
		return SHORT;
	finding->mapping.mac = load_mac(eth->source);
	finding->to = load_mac(eth->destination);
	type = eth->type;
	for (int i = 0; i < MAX_TAGS && is_tag(type); i++) {
		struct vlan_header *tag = packet->data + at;

		if ((void *)(tag + 1) > packet->end)
			return SHORT;
		if (i + packet->tags >= MAX_TAGS)
			return DONE;
		vlan = add_tag(vlan, __builtin_bswap16(tag->tci));
		type = tag->type;
		at += sizeof(*tag);
	}
	finding->mapping.address.place = place_at(packet->ifindex, vlan);

	if (type == ETH_P_ARP)
		return parse_arp(packet, at, finding);
	if (type == ETH_P_IPV6)
		return parse_ipv6(packet, at, finding);
	if (type == ETH_P_IP) {
		struct ipv4_header *ip = packet->data + at;

		if ((void *)(ip + 1) > packet->end)
			return SHORT;
		finding->source = ipv4_mapped(ip->source);
		finding->sent = is_ipv4_header(ip);
	}
	return DONE;
}

#endif
