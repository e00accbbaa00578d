// Package faults breaks clusters of real agents in the netns lab: it cuts nodes off, loses
// packets, kills agents, forges what they say to each other. Real duplicates must be found
// all the same, as soon as they can be; nothing else may be confirmed, and what was
// confirmed may neither end nor be raised anew while it lasts.
package faults
