//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */

/* Parses neighbour discovery (RFC 4861).
 *
 * A message says nothing if Linux ignores it: if it is invalid (RFC 4861 section 7.1; ndisc_recv_ns
 * and ndisc_recv_na in net/ipv6/ndisc.c), or does not fit into its packet (ip6_rcv_core).
 * Everything that Linux learns from is seen, so some rules are lax on purpose; a pod could say the
 * same by a valid message:
 * - The checksum is not looked at. On a veth it is seldom filled in.
 * - More than MAX_OPTIONS options, or options behind IPV6_BYTES, count as one with the MAC.
 * - Extension headers may have any order and content.
 * What Linux sees and this does not: messages that begin behind IPV6_BYTES, in a frame that is
 * longer than usual; and fragments, if net.ipv6.conf.*.suppress_frag_ndisc was set to 0, which RFC
 * 6980 forbids. */
#ifndef DUPIP_NDP_H
#define DUPIP_NDP_H

#include "kernel.h"
#include "address.h"
#include "config.h"
#include "record.h"
#include "parse.h"

enum { IPV6_BYTES = 2048, MAX_EXTENSIONS = IPV6_BYTES / 8, MAX_OPTIONS = 16 };

/* The first bytes of an IPv6 packet, as a copy. In a packet itself the verifier follows but a few
 * headers of variable size, and Linux follows any number of them, behind which a pod could hide a
 * message. */
struct ipv6_packet {
	union {
		struct ipv6_header header;
		__u8 bytes[IPV6_BYTES];
	};
	__u8 unused[sizeof(struct neighbour_message)]; /* for the verifier, see header_at */
	struct ip about; /* set by parse_ndp: what the message is about */
	__u64 size;	 /* of the whole packet */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ipv6_packet);
} ipv6_packets SEC(".maps");

static __always_inline struct ipv6_packet *the_ipv6_packet(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&ipv6_packets, &zero);
}

/* A header that begins in bytes, and may end in unused. The verifiers of different kernels lose the
 * bounds of at in different places, unless clang cannot see that this changes nothing. */
static __always_inline void *header_at(struct ipv6_packet *packet, __u64 at)
{
	asm volatile("%0 &= %1" : "+r"(at) : "i"(IPV6_BYTES - 1));
	return &packet->bytes[at];
}

enum options { WITHOUT_ADDRESS, WITH_ADDRESS, UNREAD, INVALID };

/* Looks for a link-layer address (RFC 4861 section 4.6.1) among the options of a message that ends
 * at limit. A message is invalid if an option has no size or exceeds it, and if the first such
 * address is not one of Ethernet (ndisc_parse_options and ndisc_opt_addr_data). */
__noinline int parse_options(__u32 at, __u32 limit, __u32 type)
{
	struct ipv6_packet *packet = the_ipv6_packet();
	enum options found = WITHOUT_ADDRESS;

	if (!packet)
		return INVALID;
	for (int i = 0; i < MAX_OPTIONS; i++) {
		const struct neighbour_option *option;

		if (at == limit)
			return found;
		if (at + sizeof(*option) > limit)
			return INVALID;
		if (at >= IPV6_BYTES)
			break;
		option = header_at(packet, at);
		at += option->size * 8;
		if (option->size == 0 || at > limit)
			return INVALID;
		if (option->type == type && found == WITHOUT_ADDRESS) {
			if (option->size != 1)
				return INVALID;
			found = WITH_ADDRESS;
		}
	}
	return found == WITH_ADDRESS ? found : UNREAD;
}

static __always_inline int is_solicited_node(const __u32 *ip)
{
	return ip[0] == be32(0xff020000) && ip[1] == 0 && ip[2] == be32(1) &&
	       (ip[3] & be32(0xff000000)) == be32(0xff000000);
}

static __always_inline int is_multicast(const void *ip)
{
	return *(__u8 *)ip == 0xff;
}

/* A message at a place where it fits in. */
static __always_inline int parse_neighbour(struct ipv6_packet *packet, __u32 at, __u32 limit,
					   __u64 mac)
{
	const struct neighbour_message *message = header_at(packet, at);
	struct ip source = load_ipv6(packet->header.source);
	int is_dad = (source.high | source.low) == 0, said;
	__u8 type = message->type, address = SOURCE_LINK_LAYER;
	enum options options;

	if (message->code != 0 || is_multicast(message->target))
		return 0;
	if (type == NEIGHBOUR_ADVERTISEMENT) {
		if (message->flags & SOLICITED && is_multicast(packet->header.destination))
			return 0;
		address = TARGET_LINK_LAYER;
	} else if (type != NEIGHBOUR_SOLICITATION ||
		   (is_dad && !is_solicited_node(packet->header.destination))) {
		return 0;
	}
	options = parse_options(at + sizeof(*message), limit, address);
	if (options == INVALID)
		return 0;

	packet->about = load_ipv6(message->target);
	if (type == NEIGHBOUR_ADVERTISEMENT) {
		said = message->flags & SOLICITED ? KIND_ANSWER : KIND_GRATUITOUS;
	} else if (is_dad) {
		/* Duplicate address detection, RFC 4862 section 5.4.2. */
		said = options == WITH_ADDRESS ? 0 : KIND_TENTATIVE;
	} else if (is_ours(mac)) {
		/* Our own probe, sent back by a mirror; by ARP that is an ARP probe anyway. */
		said = KIND_TENTATIVE;
	} else {
		packet->about = source;
		said = options == WITHOUT_ADDRESS ? 0 : KIND_ANNOUNCED;
	}
	/* A mapped IPv4 address in an IPv6 packet is invalid. */
	return is_ipv4(packet->about) ? 0 : said;
}

/* Parses an IPv6 packet with hop limit 255 and this source MAC, and returns one of enum kind for
 * what it is about, or 0. Like record_data and parse_options it is not static. */
__noinline int parse_ndp(__u64 mac)
{
	struct ipv6_packet *packet = the_ipv6_packet();
	__u32 at = sizeof(packet->header), limit;
	__u8 next;

	if (!packet)
		return 0;
	/* Linux drops a packet that is shorter than its header says, and cuts a longer one, but not
	 * if that says 0 and hop-by-hop options follow, as in a jumbogram. */
	next = packet->header.next;
	limit = at + __builtin_bswap16(packet->header.payload_size);
	if (limit == at && next == IPV6_HOP_BY_HOP)
		limit = packet->size;
	if (limit > packet->size)
		return 0;
	for (int i = 0; i < MAX_EXTENSIONS && is_extension(next); i++) {
		const struct ipv6_extension *extension = header_at(packet, at);

		if (at + sizeof(*extension) > limit)
			return 0;
		next = extension->next;
		at += (extension->size + 1) * 8;
		if (at >= IPV6_BYTES)
			return 0;
	}
	if (next != IPV6_ICMP || at + sizeof(struct neighbour_message) > limit ||
	    at + sizeof(struct neighbour_message) > IPV6_BYTES)
		return 0;
	return parse_neighbour(packet, at, limit, mac);
}

/* Takes up what parse_ndp finds. */
static __always_inline void find_ndp(struct ipv6_packet *packet, struct finding *finding)
{
	finding->said = parse_ndp(finding->mapping.mac);
	if (finding->said)
		finding->mapping.address.ip = packet->about;
}

/* Copies what may be NDP out of a packet and parses it. */
static __always_inline void load_ndp(struct __sk_buff *skb, struct finding *finding)
{
	struct ipv6_packet *ipv6 = the_ipv6_packet();
	__u32 size = skb->len - finding->ipv6_at;

	if (!ipv6)
		return;
	ipv6->size = size;
	if (size > IPV6_BYTES)
		size = IPV6_BYTES;
	asm volatile("" : "+r"(size)); /* the verifier must see that it is not 0 */
	if (size >= sizeof(ipv6->header) &&
	    !bpf_skb_load_bytes(skb, finding->ipv6_at, ipv6->bytes, size))
		find_ndp(ipv6, finding);
}

#endif
