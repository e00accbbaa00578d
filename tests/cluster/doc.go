// Package cluster starts a real Kubernetes cluster for tests: etcd, API server, controllers, scheduler and CoreDNS on one node of
// the lab, and kubelets with containerd, runc and CNI plugins on others, each in namespaces of its own as if it were a machine.
//
// It owns the machines and everything they leave behind (processes, mounts, cgroups, files). It does not know dupip.
package cluster
