//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */

/* What user space sets: once before loading (const volatile), or at run time (epoch). */
#ifndef DUPIP_CONFIG_H
#define DUPIP_CONFIG_H

#include "kernel.h"

/* How long an address that was recorded stays unrecorded while nothing about it changes. */
const volatile __u64 refresh_ns = 30000000000ULL;

/* And while nothing but its MAC changes. */
const volatile __u64 change_ns = 5000000000ULL;

/* One pair for each token bucket, see bucket.h: nanoseconds for one token, and for a full bucket.
 * The defaults are 10/s burst 64, 50/s burst 100, 20/s burst 256, 200/s burst 400, and for the
 * share of one address in the answers to us a tenth of that. */
const volatile __u64 data_token_ns = 100000000, data_full_ns = 6400000000ULL;
const volatile __u64 announced_token_ns = 20000000, announced_full_ns = 2000000000;
const volatile __u64 refresh_token_ns = 50000000, refresh_full_ns = 12800000000ULL;
const volatile __u64 answer_token_ns = 5000000, answer_full_ns = 2000000000;
const volatile __u64 share_token_ns = 50000000, share_full_ns = 2000000000;

/* The source of our own solicitations, the six bytes as on the wire; 0 for none. */
const volatile __u64 solicit_mac = 0;

/* Raised by user space with every attach and every detach. A cache slot is good for one epoch
 * only; so a slot that was filled for an interface that is gone never serves the next interface
 * with the same ifindex, and no packet pays a map lookup for that. */
volatile __u32 epoch;

#endif
