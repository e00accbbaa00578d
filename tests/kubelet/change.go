package kubelet

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Change is what a test has otherwise than the manifest. It may do anything with the pod;
// there is a function for each of the usual changes. The pod has one container.
type Change func(*corev1.PodSpec) error

// container makes a change of the container only.
func container(change func(*corev1.Container) error) Change {
	return func(p *corev1.PodSpec) error { return change(&p.Containers[0]) }
}

// Privileged runs the container privileged, without a list of capabilities and a seccomp
// profile, as manifests that do so have it.
func Privileged() Change {
	return container(func(c *corev1.Container) error {
		privileged := true
		c.SecurityContext.Privileged = &privileged
		c.SecurityContext.Capabilities, c.SecurityContext.SeccompProfile = nil, nil
		return nil
	})
}

// Without takes capabilities away that the manifest gives.
func Without(capabilities ...corev1.Capability) Change {
	return container(func(c *corev1.Container) error {
		for _, name := range capabilities {
			i := slices.Index(c.SecurityContext.Capabilities.Add, name)
			if i < 0 {
				return fmt.Errorf("there is no capability %s to take away", name)
			}
			c.SecurityContext.Capabilities.Add = slices.Delete(c.SecurityContext.Capabilities.Add, i, i+1)
		}
		return nil
	})
}

// With adds capabilities.
func With(capabilities ...corev1.Capability) Change {
	return container(func(c *corev1.Container) error {
		c.SecurityContext.Capabilities.Add = append(c.SecurityContext.Capabilities.Add, capabilities...)
		return nil
	})
}

// Args adds arguments; of two values of one flag the later wins.
func Args(more ...string) Change {
	return container(func(c *corev1.Container) error {
		c.Args = append(c.Args, more...)
		return nil
	})
}

// Env adds a variable, or takes the place of the one of this name.
func Env(name, value string) Change {
	return container(func(c *corev1.Container) error {
		c.Env = slices.DeleteFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == name })
		c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: value})
		return nil
	})
}

// Join puts addresses in the place of the name that the manifest has the agent join;
// with none it is alone.
func Join(addresses ...string) Change {
	return container(func(c *corev1.Container) error {
		i := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "DUPIP_JOIN" })
		if i < 0 {
			return errors.New("there is no DUPIP_JOIN to put others in its place")
		}
		c.Env[i].Value = strings.Join(addresses, ",")
		return nil
	})
}

// Propagation changes how the mounts of the host reach the container by a volume.
func Propagation(volume string, mode corev1.MountPropagationMode) Change {
	return container(func(c *corev1.Container) error {
		for i, m := range c.VolumeMounts {
			if m.Name == volume {
				c.VolumeMounts[i].MountPropagation = &mode
				return nil
			}
		}
		return fmt.Errorf("there is no mount of a volume %s", volume)
	})
}

// Mount adds a volume, read-only, at a path of the container.
func Mount(name, path string, source corev1.VolumeSource) Change {
	return func(p *corev1.PodSpec) error {
		p.Volumes = append(p.Volumes, corev1.Volume{Name: name, VolumeSource: *source.DeepCopy()})
		p.Containers[0].VolumeMounts = append(p.Containers[0].VolumeMounts,
			corev1.VolumeMount{Name: name, MountPath: path, ReadOnly: true})
		return nil
	}
}
