// Package scenarios plays labelled situations in the netns lab, with real agents and
// real packets: those that must be found (D…) and those that must stay quiet (Q…).
//
// A story is a few lines of what happens. A quiet story has to prove as well that the
// agent saw its packets, so that a blind agent does not pass. At the end a table says
// what was expected, what was seen, and how many seconds passed between the second
// holder's first packet and the events.
package scenarios
