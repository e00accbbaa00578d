//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */

/* The record: what one packet said about one address, as user space reads it. */
#ifndef DUPIP_RECORD_H
#define DUPIP_RECORD_H

#include "kernel.h"
#include "address.h"

enum kind {
	KIND_DATA = 1,
	KIND_ANNOUNCED = 2,
	KIND_ANSWER = 3,
	KIND_TENTATIVE = 4,
	KIND_GRATUITOUS = 5,
	KIND_DELIVERED = 6,
};

/* A MAC with a kind in its upper two bytes. */
enum { KIND_AT = 48 };
#define MAC_BITS ((1ULL << KIND_AT) - 1)

/* Decoded by record.go, little endian; changes go together. */
struct record {
	__u64 time_ns; /* CLOCK_MONOTONIC */
	struct ip ip;
	__u64 mac_and_kind; /* six bytes of MAC, one of enum kind, one 0 */
	__u64 interface;    /* four bytes of ifindex, four of generation */
	__u64 vlan;
	__u64 to; /* six bytes of the MAC that it was sent to, of what ARP or NDP says */
};

/* The records on their way to user space; its size is set when loading. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} records SEC(".maps");

static __always_inline void send_record(struct record *record, const struct mapping *mapping,
					__u32 generation, enum kind kind, __u64 to)
{
	record->time_ns = bpf_ktime_get_ns();
	record->ip = mapping->address.ip;
	record->mac_and_kind = mapping->mac | (__u64)kind << KIND_AT;
	record->interface = (__u32)mapping->address.place | (__u64)generation << 32;
	record->vlan = mapping->address.place >> 32;
	record->to = to;
	bpf_ringbuf_submit(record, 0);
}

#endif
