// Package deploy has tests of what is in the folder deploy: that it is what the API server,
// the agent and the operators' tools take. They need no cluster, no root and no lab.
package deploy
