//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */

/* A token bucket in one number: the generic cell rate algorithm (ITU-T I.371, virtual scheduling).
 *
 * The number is the time at which the bucket would be full again. Every token adds the time in
 * which one token grows. When the number is a whole bucket ahead of now, the bucket is empty.
 *
 * There is no lock and no compare-and-swap (arm64 has none for BPF before Linux 5.18): several CPUs
 * may take the same token at one time. The worst case is one more packet for each CPU, which is
 * acceptable for a limit against floods.
 */
#ifndef DUPIP_BUCKET_H
#define DUPIP_BUCKET_H

#include "kernel.h"

struct bucket {
	__u64 full_at;
};

struct rate {
	__u64 token_ns, full_ns;
};

/* Separate from bucket_take, so that a packet that fails later (a full ring) takes no token.
 * Returns the new full_at to be stored by bucket_take, or 0 when there is no token. */
static __always_inline __u64 bucket_look(const struct bucket *bucket, __u64 now, struct rate rate)
{
	__u64 full_at = bucket->full_at;

	if (full_at < now)
		full_at = now;
	full_at += rate.token_ns;
	return full_at > now + rate.full_ns ? 0 : full_at;
}

static __always_inline void bucket_take(struct bucket *bucket, __u64 full_at)
{
	bucket->full_at = full_at;
}

#endif
