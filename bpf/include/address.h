//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */

/* Addresses, and the MAC address that a packet gives for one. */
#ifndef DUPIP_ADDRESS_H
#define DUPIP_ADDRESS_H

#include "kernel.h"

/* An address in network byte order. IPv4 is kept as ::ffff:a.b.c.d (RFC 4291 section 2.5.5.2), so
 * that no IPv4 address equals any IPv6 address: mapped ones on the wire are never recorded. */
struct ip {
	__u64 high, low;
};

/* An address behind an interface, in words of eight bytes, as the kernel compares keys: a wide load
 * right after two narrow stores would make the CPU wait. */
struct address {
	struct ip ip;
	__u64 place; /* see place_at */
};

/* An interface, and in the upper half the VLAN there: up to two ids of 16 bits, the outer one
 * lowest; 0 is no tag. */
static __always_inline __u64 place_at(__u32 ifindex, __u32 vlan)
{
	return ifindex | (__u64)vlan << 32;
}

/* What a packet says: this address is, or wants to be, at this MAC. */
struct mapping {
	struct address address;
	__u64 mac; /* the six bytes as on the wire, the upper two are 0 */
};

/* Addresses that no pod has cluster-wide: this-network, loopback, link-local, multicast,
 * broadcast, unspecified, and IPv4-mapped ones that come in IPv6 packets (RFC 6890). Not
 * 240.0.0.0/4: Linux routes it, and clusters that ran out of addresses use it. */
static __always_inline int ipv4_counts(__u32 ip)
{
	__u8 first = ip;

	return first != 0 && first != 127 && (first & 0xf0) != 224 && ip != 0xffffffff &&
	       (ip & be32(0xffff0000)) != be32(0xa9fe0000);
}

static __always_inline int ipv6_counts(struct ip ip)
{
	if (ip.high == 0) {
		__u32 upper = ip.low;

		/* ::, ::1 and ::ffff:0:0/96 */
		return upper != be32(0xffff) && (ip.low & ~(1ULL << 56)) != 0;
	}
	return (ip.high & 0xff) != 0xff && (ip.high & be16(0xffc0)) != be16(0xfe80);
}

static __always_inline struct ip ipv4_mapped(__u32 ip)
{
	return (struct ip){0, (__u64)ip << 32 | be32(0xffff)};
}

static __always_inline int is_ipv4(struct ip ip)
{
	return ip.high == 0 && (__u32)ip.low == be32(0xffff);
}

static __always_inline int ip_counts(struct ip ip)
{
	return is_ipv4(ip) ? ipv4_counts(ip.low >> 32) : ipv6_counts(ip);
}

#endif
