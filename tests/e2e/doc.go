// Package e2e plays the agent as a whole, on real packets: what it must not disturb (the
// traffic it observes, CNI plugins at work), what it says when something is wrong, what
// it leaves behind, and how fast it is.
//
// Whether a situation is a conflict is the business of tests/scenarios.
package e2e
