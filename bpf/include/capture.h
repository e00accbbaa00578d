//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */

/* Captures what holders of a suspected address send. */
#ifndef DUPIP_CAPTURE_H
#define DUPIP_CAPTURE_H

#include "kernel.h"
#include "config.h"
#include "parse.h"
#include "table.h"

/* Of ARP and NDP whole packets, of others the headers. Frames hold enough of both; user space cuts
 * them to their headers before it keeps them. */
enum { WHOLE_BYTES = 256, HEADER_BYTES = 96 };

/* Decoded by frame.go, little endian; changes go together. */
struct frame {
	__u64 time_ns; /* CLOCK_MONOTONIC */
	struct ip ip;
	__u64 interface; /* four bytes of ifindex, four of generation */
	__u64 vlan;
	__u32 size;	/* of the packet, without the tag in the metadata */
	__u32 captured; /* how many of bytes are of the packet */
	__u16 tag_tci,
		tag_type; /* the tag in the metadata: the TCI, and the type as on the wire or 0 */
	__u32 kind;	  /* enum frame_kind */
	__u8 bytes[WHOLE_BYTES];
};

/* The frames on their way to user space. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 17);
} frames SEC(".maps");

/* Reserves a frame for a packet if what it is about, or from, is captured. Several CPUs may use up
 * the same frame of the budget at one time: user space counts, too. */
static __always_inline struct frame *make_frame(const struct finding *finding, __u32 size)
{
	struct address address = finding->mapping.address;
	__u32 left;
	enum frame_kind kind = ORDINARY;
	struct interface *interface;
	struct capture *capture;
	struct frame *frame;

	capture = bpf_map_lookup_elem(&captures, &address);
	if (!capture && finding->sent) {
		address.ip = finding->source;
		capture = bpf_map_lookup_elem(&captures, &address);
	}
	if (!capture)
		return 0;
	interface = find_interface(&address);
	if (!interface)
		return 0;
	if (finding->said == KIND_ANSWER)
		kind = is_ours(finding->to) ? ANSWER_TO_US : OTHER_ANSWER;
	else if (finding->said)
		kind = ANNOUNCEMENT;
	left = capture->left[kind];
	if (!left)
		return 0;
	frame = bpf_ringbuf_reserve(&frames, sizeof(*frame), 0);
	if (!frame) {
		count(capture->lost);
		return 0;
	}
	capture->left[kind] = left - 1;
	frame->time_ns = bpf_ktime_get_ns();
	frame->ip = address.ip;
	frame->interface = (__u32)address.place | (__u64)interface->generation << 32;
	frame->vlan = address.place >> 32;
	frame->size = size;
	frame->tag_tci = 0;
	frame->tag_type = 0;
	frame->kind = kind;
	return frame;
}

static __always_inline __u32 captured_size(const struct finding *finding, __u32 size)
{
	__u32 most = finding->said ? WHOLE_BYTES : HEADER_BYTES;

	return size < most ? size : most;
}

/* This and capture_xdp are static, unlike record_data: the verifier of Linux 6.1 knows
 * a context in an argument of another function only by the types of the kernel, which not every
 * kernel has. */
static __noinline int capture_skb(struct __sk_buff *skb, struct finding *finding)
{
	struct frame *frame;
	__u32 size;

	frame = make_frame(finding, skb->len);
	if (!frame)
		return 0;
	if (skb->vlan_present) {
		frame->tag_tci = skb->vlan_tci;
		frame->tag_type = skb->vlan_proto;
	}
	size = captured_size(finding, skb->len);
	asm volatile("" : "+r"(size)); /* the verifier must see that it is not 0 */
	if (size < sizeof(struct eth_header) || bpf_skb_load_bytes(skb, 0, frame->bytes, size))
		size = 0;
	frame->captured = size;
	bpf_ringbuf_submit(frame, 0);
	return 0;
}

static __noinline int capture_xdp(struct xdp_md *ctx, struct finding *finding)
{
	__u8 *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct frame *frame;
	__u32 size, last;

	frame = make_frame(finding, end - (void *)data);
	if (!frame)
		return 0;
	size = captured_size(finding, end - (void *)data);
	for (__u32 at = 0; at + 8 <= size && (void *)(data + at + 8) <= end; at += 8) {
		*(__u64 *)(frame->bytes + at) = *(__u64 *)(data + at);
		barrier(); /* or clang calls memcpy */
	}
	/* The last eight bytes, of which some may be there already. */
	last = (size - 8) & (WHOLE_BYTES - 1);
	if (last + 8 <= WHOLE_BYTES && (void *)(data + last + 8) <= end)
		*(__u64 *)(frame->bytes + last) = *(__u64 *)(data + last);
	frame->captured = size;
	bpf_ringbuf_submit(frame, 0);
	return 0;
}

#endif
