// Package detector decides, from sightings of addresses, which of them have two
// live holders at one time.
//
// It is pure: no I/O, no goroutine and no clock. The present time is an argument; what the caller has to do is returned as [Effects]. A
// [Detector] is not safe for concurrent use. It must not know how packets are read, what a netns looks like or how nodes send messages to
// each other.
//
// The parts, from the ground up; each calls those before it only, and what it has found is a value for those after it, in the entry of
// the address. (But the verifier asks a conflict whose answers it awaits.)
//
//	check      what one holder has answered            story      notes of one address, and who had it
//	penalties  who did not answer lately               table      who has which address, and on what evidence
//	verifier   asks the holders of an address          admission  whose round is next
//	conflicts  suspected, confirmed, ended
//
// A [Detector] has them decide in this order: Observe for a sighting, Probed for the result of a probe, and step for what is due.
//
// # The life cycle of a conflict
//
// The conflicts (life.go) change the state of each:
//
//	  two holders              two rounds               fewer than two for 3 s
//	--------------> suspected ------------> confirmed --------------------------> resolved
//	                    |                       ^                                    ^
//	     fewer than two |                       | two rounds                         |
//	                    v                       |                                    |
//	                  faded <--------------- restored ------------------------------>+
//	                         it never was       ^      fewer than two when its time
//	                         confirmed          |      is over: 30, 90 or 10 s
//	                                         Restore
//
// A restored conflict is listed as suspected. It has the holders and times that a previous
// agent knew.
//
// In a round all holders are probed at about the same time (verification.go). Holders have an
// address together if they answer the same two rounds, at least MinOverlap apart: in each of
// them their answers are at most 1 s apart, because an address may move to and fro. That
// confirms a suspicion, and it adds a newcomer to a confirmed conflict. An answer that comes
// too late for the others' is paired with their next ones: only they are probed again. Further
// rounds, every 5 s and later every 30 s, check whether the holders still answer.
//
// The verifier changes the state of each holder in a round:
//
//	          probed              answered
//	resting ----------> probing ------------> resting
//	                     ^  |
//	  its time is over,  |  +---------------> penalty: it is no holder any more
//	  or it is seen      |  |  not answered
//	                     |  |
//	       waiting, blocked <+ a guard forbids the probe, or its node does not reply
//
// Each node of a conflict verifies all holders, at about the same time. If a remote holder has the address, too,
// the first probe of a local one waits for that node's request, its reply or 1 s: the answer to a probe
// that another node requested counts as well. So one probe is usually enough for both nodes.
//
// A round begins when it is admitted (admission.go): the budget has its probes and, if it is the first one, those of the second. Second rounds
// wait for nobody.
//
// A holder of a confirmed conflict gets a penalty only if it leaves two rounds unanswered that begin 5 s
// or more apart. A holder that a restored conflict waits for gets one when that time is over. penalty.go
// has for how long a penalty suppresses the evidence of a holder.
package detector
