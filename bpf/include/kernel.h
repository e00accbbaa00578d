//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */

/* The few kernel types, constants and helpers that the observer needs.
 *
 * Layouts and numbers are UAPI (include/uapi/linux/bpf.h, if_ether.h, if_arp.h, ip.h, ipv6.h,
 * icmpv6.h), so they hold for every kernel and no CO-RE relocation is needed. The exception is
 * what is marked as kernel_type.
 */
#ifndef DUPIP_KERNEL_H
#define DUPIP_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;

#define SEC(name)	__attribute__((section(name), used))
#define __always_inline inline __attribute__((always_inline))
#define __noinline	__attribute__((noinline))
#define __uint(name, v) int(*name)[v]
#define __type(name, t) typeof(t) *name
#define likely(x)	__builtin_expect(!!(x), 1)
#define unlikely(x)	__builtin_expect(!!(x), 0)
#define barrier()	asm volatile("" ::: "memory")
#define kernel_type	__attribute__((preserve_access_index))

/* Network byte order constants; the objects are little endian only. */
#define be16(x) ((__u16)__builtin_bswap16(x))
#define be32(x) ((__u32)__builtin_bswap32(x))

enum { BPF_ANY = 0, BPF_F_NO_PREALLOC = 1 };
enum { BPF_MAP_TYPE_HASH = 1, BPF_MAP_TYPE_ARRAY = 2, BPF_MAP_TYPE_PERCPU_ARRAY = 6 };
enum { BPF_MAP_TYPE_LRU_HASH = 9, BPF_MAP_TYPE_RINGBUF = 27 };
enum { TC_ACT_UNSPEC = -1, XDP_PASS = 2, PACKET_OUTGOING = 4 };

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_map_update_elem)(void *map, const void *key, const void *value,
					 __u64 flags) = (void *)2;
static __u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
static long (*const bpf_skb_load_bytes)(const void *skb, __u32 offset, void *to,
					__u32 size) = (void *)26;
static long (*const bpf_skb_pull_data)(void *skb, __u32 len) = (void *)39;
static __u64 (*const bpf_jiffies64)(void) = (void *)118;
static void *(*const bpf_ringbuf_reserve)(void *ring, __u64 size, __u64 flags) = (void *)131;
static void (*const bpf_ringbuf_submit)(void *data, __u64 flags) = (void *)132;

struct __sk_buff {
	__u32 len, pkt_type, mark, queue_mapping, protocol;
	__u32 vlan_present, vlan_tci, vlan_proto;
	__u32 priority, ingress_ifindex, ifindex, tc_index;
	__u32 cb[5];
	__u32 hash, tc_classid, data, data_end;
};

struct xdp_md {
	__u32 data, data_end, data_meta, ingress_ifindex, rx_queue_index;
};

/* The way from a packet to the cookie of its device's netns. The loader finds the members by the
 * BTF of the running kernel. */
struct net {
	__u64 net_cookie;
} kernel_type;

typedef struct {
	struct net *net;
} kernel_type possible_net_t;

struct net_device {
	possible_net_t nd_net;
} kernel_type;

struct sk_buff {
	struct net_device *dev;
} kernel_type;

/* Linux 6.2. bpf_get_netns_cookie is for tc only since Linux 6.15. */
extern void *bpf_cast_to_kern_ctx(void *context) SEC(".ksyms");
extern void *bpf_rdonly_cast(const void *object, __u32 type) SEC(".ksyms");

/* What the loader fills in, as bpf_core_type_size and bpf_core_type_id_kernel of libbpf. */
#define kernel_size(type) __builtin_preserve_type_info(*(typeof(type) *)0, 1)
#define kernel_id(type)	  __builtin_btf_type_id(*(typeof(type) *)0, 1)

#define ETH_P_IP     be16(0x0800)
#define ETH_P_ARP    be16(0x0806)
#define ETH_P_IPV6   be16(0x86dd)
#define ETH_P_8021Q  be16(0x8100)
#define ETH_P_8021AD be16(0x88a8)
#define VLAN_VID     0x0fff

struct eth_header {
	__u8 destination[6];
	__u8 source[6];
	__u16 type;
} __attribute__((packed, aligned(2)));

struct vlan_header {
	__u16 tci;
	__u16 type;
};

/* ARP for IPv4 over Ethernet, RFC 826. */
struct arp_packet {
	__u16 hardware;
	__u16 protocol;
	__u8 hardware_size;
	__u8 protocol_size;
	__u16 operation;
	__u8 sender_mac[6];
	__u8 sender_ip[4];
	__u8 target_mac[6];
	__u8 target_ip[4];
};

struct ipv4_header {
	__u8 version_and_size; /* the size in units of four bytes */
	__u8 tos;
	__u16 total_size, id, fragment;
	__u8 ttl, protocol;
	__u16 checksum;
	__u32 source, destination;
};

struct ipv6_header {
	__u8 version; /* the low half is the upper half of the traffic class */
	__u8 flow[3];
	__u16 payload_size;
	__u8 next, hop_limit;
	__u32 source[4], destination[4];
};

enum {
	IPV6_HOP_BY_HOP = 0,
	IPV6_ROUTING = 43,
	IPV6_ICMP = 58,
	IPV6_DESTINATION = 60,
};

/* What hop-by-hop, routing and destination headers begin with, RFC 8200 section 4. */
struct ipv6_extension {
	__u8 next;
	__u8 size; /* in units of eight bytes, not counting the first */
	__u8 rest[6];
};

/* Where things are in a frame without a tag. */
enum {
	SOURCE_AT = 6,
	ARP_OPERATION_AT = 20,
	ARP_MAC_AT = 22,
	ARP_SENDER_AT = 28,
	ARP_TARGET_AT = 38,
	IPV6_NEXT_AT = 20,
	NDP_TYPE_AT = 54,
	NDP_TARGET_AT = 62,
};

enum { NEIGHBOUR_SOLICITATION = 135, NEIGHBOUR_ADVERTISEMENT = 136 };
enum { SOURCE_LINK_LAYER = 1, TARGET_LINK_LAYER = 2 };

#define SOLICITED be32(0x40000000) /* a flag of advertisements */

/* Both kinds look the same up to their options, RFC 4861 sections 4.3 and 4.4. */
struct neighbour_message {
	__u8 type, code;
	__u16 checksum;
	__u32 flags;
	__u32 target[4];
};

struct neighbour_option {
	__u8 type;
	__u8 size; /* in units of eight bytes, never 0 */
	__u8 rest[6];
};

#endif
