// Package bench measures what dupip costs and prints one table: each figure with the goal
// that the design sets for it. As an ordinary test it measures everything in miniature, where
// no figure counts; make bench runs it with -size full.
//
// It owns the order in which things are measured: what is compared is run in turns, so that
// whatever else the machine does hits all alike, and figures are medians. It sees the agent
// from outside, as a binary with an API, and package bpf by what that exports.
package bench
