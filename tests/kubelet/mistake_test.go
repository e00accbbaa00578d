package kubelet_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dupip/dupip/tests/kubelet"
	"github.com/dupip/dupip/tests/lab"
)

// withoutVolume takes a volume and its mount away.
func withoutVolume(name string) kubelet.Change {
	return func(p *corev1.PodSpec) error {
		volumes, mounts := len(p.Volumes), len(p.Containers[0].VolumeMounts)
		p.Volumes = slices.DeleteFunc(p.Volumes, func(v corev1.Volume) bool { return v.Name == name })
		p.Containers[0].VolumeMounts = slices.DeleteFunc(p.Containers[0].VolumeMounts,
			func(m corev1.VolumeMount) bool { return m.Name == name })
		if len(p.Volumes) == volumes || len(p.Containers[0].VolumeMounts) == mounts {
			return errors.New("there is no such volume: " + name)
		}
		return nil
	}
}

func withoutHostPID(p *corev1.PodSpec) error {
	p.HostPID = false
	return nil
}

// What other manifests may lack, one at a time: the agent does the rest, and doctor in the container
// reports what to add.
func TestManifestsThatLackSomething(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	s := newTestNode(l, ptp)
	olderPods := s.pods("older", 1)
	for _, tt := range []struct {
		name          string
		change        kubelet.Change
		check, status string
		words         []string
	}{
		{"propagation", withPropagation("netns", corev1.MountPropagationNone), "netns names", "fail", []string{"HostToContainer"}},
		{"names", withoutVolume("netns"), "netns names", "fail", []string{"/run/netns", "HostToContainer"}},
		{"processes", withoutHostPID, "processes", "warn", []string{"hostPID: true"}},
		{"a state", withoutVolume("state"), "state dir", "fail", []string{"read-only", "hostPath volume at /var/lib/dupip"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := &lab.T{Lab: l.Lab, TB: t}
			s := &testNode{s.Kubelet, l}
			a := s.agent(tt.change)
			newcomer := s.pods("newcomer", 1)[0]
			for _, p := range append(olderPods, newcomer) {
				for _, ip := range p.IPs {
					_, err := a.Client.WaitBinding(within(l), ip, func(lab.Binding) bool { return true })
					l.Do(err)
				}
			}
			c := doctor(l, a)[tt.check]
			t.Logf("%+v", c)
			if c.Status != tt.status {
				t.Errorf("doctor: %+v, want %s", c, tt.status)
			}
			for _, word := range tt.words {
				if !strings.Contains(c.Finding+c.Advice, word) {
					t.Errorf("doctor: %+v, want a word of %q", c, word)
				}
			}
			l.Do(s.Runtime.RemovePod(t.Context(), newcomer), a.Stop())
		})
	}
}
