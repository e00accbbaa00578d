//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */

/* Set by user space: once before loading (const volatile), or at run time (the others). */
#ifndef DUPIP_CONFIG_H
#define DUPIP_CONFIG_H

#include "kernel.h"

/* How long an unchanged address is not recorded again. */
const volatile __u64 refresh_ns = 30000000000ULL;

/* The same if only its MAC changes. */
const volatile __u64 change_ns = 5000000000ULL;

/* One pair for each token bucket, see bucket.h: nanoseconds for one token, and for a full bucket.
 * The defaults are 10/s burst 64, 50/s burst 100, 20/s burst 256, 200/s burst 400, and for the
 * share of one address in the answers to us a tenth of that. */
const volatile __u64 data_token_ns = 100000000, data_full_ns = 6400000000ULL;
const volatile __u64 announced_token_ns = 20000000, announced_full_ns = 2000000000;
const volatile __u64 refresh_token_ns = 50000000, refresh_full_ns = 12800000000ULL;
const volatile __u64 answer_token_ns = 5000000, answer_full_ns = 2000000000;
const volatile __u64 share_token_ns = 50000000, share_full_ns = 2000000000;

/* The length of a tick of the kernel (1/HZ), by which jiffies count. */
const volatile __u64 tick_ns = 4000000;

/* The first three bytes of the source MACs of our own probes, as on the wire; 0 for none. Each
 * probe has another MAC. */
const volatile __u64 solicit_mac = 0;

static __always_inline int is_ours(__u64 mac)
{
	return solicit_mac && ((mac ^ solicit_mac) & 0xffffff) == 0;
}

/* Odd random numbers, for the digests of cache.h. */
const volatile __u64 secrets[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};

/* A random odd number that user space renews with every attach and detach. What is cached is
 * valid for one epoch only. So nothing of a deleted interface is used for the next interface with
 * the same ifindex, and that needs no map lookup for each packet. */
volatile __u64 epoch;

/* Until when an interface has no token for an unknown source. The program sets it. */
volatile __u64 flooded_until;

/* How many addresses are captured, see capture.h. After an increment user space renews the
 * epoch: an address that is captured has no line. So one that has a line is not looked up. */
volatile __u32 capturing;

#endif
