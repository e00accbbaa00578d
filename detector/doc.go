// Package detector decides, from sightings of addresses, which of them have two
// live holders at one time.
//
// It owns the local binding table, the matching of holders and the life cycle of
// conflicts. It is pure: no I/O, no goroutine and no clock. The present is always
// an argument, and everything it wants done is returned as [Effects]. A [Detector]
// is not safe for concurrent use; one goroutine owns it.
//
// It must not know how packets are read, what a netns looks like or how nodes talk
// to each other.
package detector
