package kubelet_test

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dupip/dupip/tests/kubelet"
)

// withoutCapability takes a capability away that the manifest gives.
func withoutCapability(name corev1.Capability) kubelet.Change {
	return func(p *corev1.PodSpec) error {
		add := &p.Containers[0].SecurityContext.Capabilities.Add
		if !slices.Contains(*add, name) {
			return fmt.Errorf("there is no capability %s to take away", name)
		}
		*add = slices.DeleteFunc(*add, func(c corev1.Capability) bool { return c == name })
		return nil
	}
}

// withEnv adds a variable, or takes the place of the one of this name.
func withEnv(name, value string) kubelet.Change {
	return func(p *corev1.PodSpec) error {
		c := &p.Containers[0]
		c.Env = slices.DeleteFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == name })
		c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: value})
		return nil
	}
}

// withPropagation changes how the mounts of the host reach the container by a volume.
func withPropagation(volume string, mode corev1.MountPropagationMode) kubelet.Change {
	return func(p *corev1.PodSpec) error {
		mounts := p.Containers[0].VolumeMounts
		i := slices.IndexFunc(mounts, func(m corev1.VolumeMount) bool { return m.Name == volume })
		if i < 0 {
			return fmt.Errorf("there is no mount of a volume %s", volume)
		}
		mounts[i].MountPropagation = &mode
		return nil
	}
}

// withMount adds a volume, read-only, at a path of the container.
func withMount(name, path string, source corev1.VolumeSource) kubelet.Change {
	return func(p *corev1.PodSpec) error {
		p.Volumes = append(p.Volumes, corev1.Volume{Name: name, VolumeSource: source})
		p.Containers[0].VolumeMounts = append(p.Containers[0].VolumeMounts,
			corev1.VolumeMount{Name: name, MountPath: path, ReadOnly: true})
		return nil
	}
}
