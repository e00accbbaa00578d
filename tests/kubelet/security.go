package kubelet

import (
	"fmt"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maskedPaths and readonlyPaths are those of a container with the default procMount.
var (
	maskedPaths = []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi",
		"/sys/firmware", "/sys/devices/virtual/powercap",
	}
	readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

// securityContext is what a container may do.
func securityContext(s *corev1.SecurityContext) (*runtimeapi.LinuxContainerSecurityContext, error) {
	to := &runtimeapi.LinuxContainerSecurityContext{
		MaskedPaths: maskedPaths, ReadonlyPaths: readonlyPaths,
		// By default a kubelet uses no filter if the manifest names none.
		Seccomp: &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined},
	}
	if s == nil {
		return to, nil
	}
	is := func(b *bool) bool { return b != nil && *b }
	to.Privileged, to.ReadonlyRootfs = is(s.Privileged), is(s.ReadOnlyRootFilesystem)
	to.NoNewPrivs = s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation
	if s.RunAsUser != nil {
		to.RunAsUser = &runtimeapi.Int64Value{Value: *s.RunAsUser}
	}
	if s.RunAsGroup != nil {
		to.RunAsGroup = &runtimeapi.Int64Value{Value: *s.RunAsGroup}
	}
	if c := s.Capabilities; c != nil {
		to.Capabilities = &runtimeapi.Capability{}
		for _, name := range c.Add {
			to.Capabilities.AddCapabilities = append(to.Capabilities.AddCapabilities, string(name))
		}
		for _, name := range c.Drop {
			to.Capabilities.DropCapabilities = append(to.Capabilities.DropCapabilities, string(name))
		}
	}
	if p := s.SeccompProfile; p != nil {
		switch p.Type {
		case corev1.SeccompProfileTypeUnconfined:
		case corev1.SeccompProfileTypeRuntimeDefault:
			to.Seccomp.ProfileType = runtimeapi.SecurityProfile_RuntimeDefault
		default:
			return nil, fmt.Errorf("the seccomp profile %s is not understood", p.Type)
		}
	}
	// The lab's runtimes use neither AppArmor nor SELinux, because machines differ in which they have.
	// So only an unconfined AppArmor profile is supported, and an SELinux label does nothing.
	if p := s.AppArmorProfile; p != nil {
		if p.Type != corev1.AppArmorProfileTypeUnconfined {
			return nil, fmt.Errorf("the lab has no AppArmor profile %s", p.Type)
		}
		to.Apparmor = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
	}
	if o := s.SELinuxOptions; o != nil {
		to.SelinuxOptions = &runtimeapi.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
	}
	return to, nil
}

// resources are the limits of a container, as far as the machine has the controllers.
func resources(r corev1.ResourceRequirements) *runtimeapi.LinuxContainerResources {
	const leastShares, sharesOfCPU, period = 2, 1024, 100_000
	to := &runtimeapi.LinuxContainerResources{}
	if cpu, ok := r.Requests[corev1.ResourceCPU]; ok {
		to.CpuShares = max(leastShares, cpu.MilliValue()*sharesOfCPU/1000)
	}
	if cpu, ok := r.Limits[corev1.ResourceCPU]; ok {
		to.CpuPeriod, to.CpuQuota = period, cpu.MilliValue()*period/1000
	}
	if memory, ok := r.Limits[corev1.ResourceMemory]; ok && HasMemoryLimits() {
		to.MemoryLimitInBytes = memory.Value()
	}
	return to
}

// HasMemoryLimits returns whether the machine can limit the memory of a container.
func HasMemoryLimits() bool {
	if _, err := os.Stat("/sys/fs/cgroup/memory/memory.limit_in_bytes"); err == nil {
		return true
	}
	controllers, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
	return err == nil && slices.Contains(strings.Fields(string(controllers)), "memory")
}
