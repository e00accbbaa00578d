package observe

import "testing"

// Only names that KubeVirt makes are converted.
func TestFirstName(t *testing.T) {
	for peer, want := range map[string]string{
		"eth0": "eth0", "eth0-nic": "eth0", "net12-nic": "net12", "16477688c0e-nic": "pod16477688c0e",
		"storage-nic": "storage-nic", "nic": "nic", "-nic": "-nic", "eth-nic": "eth-nic", "myeth0-nic": "myeth0-nic",
		"16477688c0-nic": "16477688c0-nic", "net1-nic0": "net1-nic0", "pod16477688c0-": "pod16477688c0-",
	} {
		if got := firstName(peer); got != want {
			t.Errorf("%s: %s, want %s", peer, got, want)
		}
	}
}
