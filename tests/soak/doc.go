// Package soak lets a cluster of three real agents live through a random life of pods:
// births, deaths, moves, addresses that change hands, duplicates, agents that are
// restarted. Package plan draws it from a seed, package truth looks every 250 ms which
// namespace has which addresses, and package judge compares that with what the agents
// say at the same time.
//
// This package does the steps, listens to the agents and writes everything down. What is
// found is printed with the seed and the story of the address.
package soak
