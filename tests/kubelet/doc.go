// Package kubelet does with the manifest of the DaemonSet what a kubelet does: it makes CRI
// calls of it on a real containerd on a node of the lab, so that tests run the agent in the
// container that a cluster would run it in.
//
// It owns the translation: environment, volumes, security context, limits, probes, cluster
// DNS. What stands in the manifest and is not understood here is an error, so the tests
// cannot drift from what is deployed. It must not know what dupip does, beyond the paths at
// which its container is spoken to.
package kubelet
