// Package scenarios plays labelled situations in the netns lab, with real agents and
// real packets: those that must be found (D…) and those that must stay quiet (Q…). Most are
// played on one node, whose agent is alone, and on several, whose agents are a cluster.
//
// A story is a few lines of what happens. A quiet story has to prove as well that the
// agents saw its packets, and each ends with a real duplicate that is found, so that
// agents that are blind, asleep or deaf to each other do not pass. At the end a table says
// what was expected, what was seen, and how many seconds passed between the second
// holder's first packet, or what the row says, and the events.
package scenarios
