//go:build race

package testneeds

// Raced is whether the race detector looks on. What it makes too slow, and is not about threads, can be left out then.
const Raced = true
