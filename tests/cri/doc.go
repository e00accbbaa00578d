// Package cri runs a real container runtime on a node of the lab: containerd with runc
// and real CNI plugins, made pods of over its CRI socket as a kubelet does it.
//
// It owns everything a runtime leaves about (shims, pods, mounts, netns, cgroups, caches)
// and removes it, at the latest at the next start after a process that was killed. Nothing
// is pulled: the sandbox image is a Go program of a few lines. It must not know dupip;
// that is for the tests that bring the two together.
package cri
