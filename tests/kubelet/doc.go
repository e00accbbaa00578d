// Package kubelet turns the manifest of the DaemonSet into CRI calls, as a kubelet does, to a real
// containerd on a node of the lab. So tests run the agent in the container that a cluster would run.
//
// It owns the translation: environment, volumes, security context, limits, probes, cluster DNS. A
// field of the manifest that it does not understand is an error, so the tests cannot drift from what
// is deployed. Of dupip it knows only the paths of its API and state, and the variable with CNI's folder.
package kubelet
