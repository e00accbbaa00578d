// Package alerting goes the whole way from a pod's packet to the person who is woken: real
// agents on nodes of the lab, a real Prometheus with the rules that are deployed, a real
// Alertmanager with the configuration of the runbook, and somebody who takes what that sends
// and opens the dashboard.
//
// It owns those processes and ends them. What the rules say at what time is for promtool's
// cases in deploy; here is what only the real parts can show: that they fit together, and how
// long it takes.
package alerting
