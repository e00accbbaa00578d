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
	int tags;   /* how many tags the metadata holds */
	int more;   /* there are bytes after end, and the caller can fetch them */
};

/* What a packet says. An NDP packet says two things: what it is about, and its source. */
struct finding {
	struct claim claim;
	struct ip source;
	int said;  /* one of enum kind for the claim, or 0 */
	int sent;  /* the source counts */
	int to_us; /* it was sent to the source of our solicitations */
};

enum verdict {
	DONE,
	SHORT, /* a header is not in the linear part of the packet */
};

enum { MAX_TAGS = 2, MAX_EXTENSIONS = 4, MAX_OPTIONS = 4 };

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
static __always_inline enum ordinary parse_ordinary(void *data, void *end, struct claim *claim)
{
	struct eth_header *eth = data;
	void *at = eth + 1;

	if (at > end)
		return NOT_ORDINARY;
	claim->mac = load_mac(eth->source);
	if (eth->type == ETH_P_IP) {
		struct ipv4_header *ip = at;

		if ((void *)(ip + 1) > end)
			return NOT_ORDINARY;
		claim->address.ip = ipv4_mapped(ip->source);
		return is_ipv4_header(ip) ? SENT_IPV4 : NOTHING;
	}
	if (eth->type == ETH_P_IPV6) {
		struct ipv6_header *ip = at;

		if ((void *)(ip + 1) > end || ip->next == IPV6_ICMP || is_extension(ip->next))
			return NOT_ORDINARY;
		claim->address.ip = load_ipv6(ip->source);
		return ip->version >> 4 == 6 && !is_ipv4(claim->address.ip) ? SENT_IPV6 : NOTHING;
	}
	return NOT_ORDINARY;
}

static __always_inline enum verdict parse_arp(const struct packet *packet, void *at,
					      struct finding *finding)
{
	struct arp_packet *arp = at;
	__u32 sender, target;

	if ((void *)(arp + 1) > packet->end)
		return SHORT;
	if (arp->hardware != be16(1) || arp->protocol != ETH_P_IP || arp->hardware_size != 6 ||
	    arp->protocol_size != 4)
		return DONE;
	sender = *(__u32 *)arp->sender_ip;
	target = *(__u32 *)arp->target_ip;
	finding->claim.mac = load_mac(arp->sender_mac);
	finding->claim.address.ip = ipv4_mapped(sender);
	if (arp->operation == be16(2)) {
		finding->said = sender == target ? KIND_GRATUITOUS : KIND_ANSWER;
	} else if (arp->operation == be16(1) && sender) {
		finding->said = sender == target ? KIND_GRATUITOUS : KIND_ANNOUNCED;
	} else if (arp->operation == be16(1)) {
		/* An ARP probe, RFC 5227 section 2.1.1. */
		finding->claim.address.ip = ipv4_mapped(target);
		finding->said = KIND_TENTATIVE;
	}
	return DONE;
}

/* Whether a solicitation carries the link-layer address of its sender, RFC 4861 section 4.6.1. */
static __always_inline enum verdict parse_options(const struct packet *packet, void *at, int *found)
{
	for (int i = 0; i < MAX_OPTIONS; i++) {
		struct neighbour_option *option = at;

		if ((void *)(option + 1) > packet->end)
			return packet->more ? SHORT : DONE;
		if (option->type == SOURCE_LINK_LAYER && option->size == 1) {
			*found = 1;
			return DONE;
		}
		if (option->size == 0)
			return DONE;
		at += option->size * 8;
	}
	return DONE;
}

/* A solicitation or an advertisement with hop limit 255; anything else, and what RFC 4861 section
 * 7.1 calls invalid, says nothing. The checksum is not looked at: on a veth it is seldom filled in.
 */
static __always_inline enum verdict parse_neighbour(const struct packet *packet, void *at,
						    struct finding *finding)
{
	struct neighbour_message *message = at;
	int has_source_mac = 0;

	if ((void *)(message + 1) > packet->end)
		return packet->more ? SHORT : DONE;
	if (message->code != 0)
		return DONE;
	if (message->type == NEIGHBOUR_ADVERTISEMENT) {
		finding->claim.address.ip = load_ipv6(message->target);
		finding->said = message->flags & SOLICITED ? KIND_ANSWER : KIND_GRATUITOUS;
	} else if (message->type != NEIGHBOUR_SOLICITATION) {
		return DONE;
	} else if ((finding->source.high | finding->source.low) == 0 ||
		   finding->claim.mac == solicit_mac) {
		/* Duplicate address detection, RFC 4862 section 5.4.2. Or our own probe, sent
		 * back by a mirror; by ARP that is an ARP probe anyway. */
		finding->claim.address.ip = load_ipv6(message->target);
		finding->said = KIND_TENTATIVE;
	} else {
		if (parse_options(packet, message + 1, &has_source_mac) == SHORT)
			return SHORT;
		finding->claim.address.ip = finding->source;
		finding->said = has_source_mac ? KIND_ANNOUNCED : 0;
	}
	return DONE;
}

static __always_inline enum verdict parse_ipv6(const struct packet *packet, void *at,
					       struct finding *finding)
{
	struct ipv6_header *ip = at;
	__u8 next, hop_limit;

	if ((void *)(ip + 1) > packet->end)
		return SHORT;
	if (ip->version >> 4 != 6)
		return DONE;
	finding->source = load_ipv6(ip->source);
	finding->sent = !is_ipv4(finding->source);
	next = ip->next;
	hop_limit = ip->hop_limit;
	at = ip + 1;
	for (int i = 0; i < MAX_EXTENSIONS && is_extension(next); i++) {
		struct ipv6_extension *extension = at;

		if ((void *)(extension + 1) > packet->end)
			return packet->more ? SHORT : DONE;
		next = extension->next;
		at += (extension->size + 1) * 8;
	}
	/* A fragment header is no extension here: NDP in fragments is not NDP (RFC 6980). */
	if (next == IPV6_ICMP && hop_limit == 255 && parse_neighbour(packet, at, finding) == SHORT)
		return SHORT;
	/* A mapped IPv4 address in an IPv6 packet is invalid. */
	if (is_ipv4(finding->claim.address.ip))
		finding->said = 0;
	return DONE;
}

/* Parses what parse_ordinary does not. After SHORT it may be called again with more of the
 * packet. */
static __noinline enum verdict parse(const struct packet *packet, struct finding *finding)
{
	struct eth_header *eth = packet->data;
	void *at = eth + 1;
	__u32 vlan = packet->vlan;
	__u16 type;

	*finding = (struct finding){{{.interface = packet->ifindex}}};
	if (at > packet->end)
		return SHORT;
	finding->claim.mac = load_mac(eth->source);
	finding->to_us = load_mac(eth->destination) == solicit_mac;
	type = eth->type;
	for (int i = 0; i < MAX_TAGS && is_tag(type); i++) {
		struct vlan_header *tag = at;

		if ((void *)(tag + 1) > packet->end)
			return SHORT;
		if (i + packet->tags >= MAX_TAGS)
			return DONE;
		vlan = add_tag(vlan, __builtin_bswap16(tag->tci));
		type = tag->type;
		at = tag + 1;
	}
	finding->claim.address.vlan = vlan;

	if (type == ETH_P_ARP)
		return parse_arp(packet, at, finding);
	if (type == ETH_P_IPV6)
		return parse_ipv6(packet, at, finding);
	if (type == ETH_P_IP) {
		struct ipv4_header *ip = at;

		if ((void *)(ip + 1) > packet->end)
			return SHORT;
		finding->source = ipv4_mapped(ip->source);
		finding->sent = is_ipv4_header(ip);
	}
	return DONE;
}

#endif
