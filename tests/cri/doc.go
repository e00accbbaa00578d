// Package cri runs a real container runtime on a node of the lab: containerd with runc and real CNI
// plugins. It makes pods over the CRI socket as a kubelet does.
//
// It owns everything that a runtime leaves (shims, pods, mounts, netns, cgroups, caches) and removes it,
// after a kill at the next start. It pulls nothing: the sandbox image is a small Go program. It does not
// know dupip.
package cri
