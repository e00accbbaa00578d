package books

import "slices"

// newAzure returns the book of Azure CNS: NodeNetworkConfigs, which say what addresses or range a node has, and no pods. Only the format is
// known, it never ran with Azure. (github.com/Azure/azure-container-networking: crd/nodenetworkconfig/api/v1alpha,
// cns/kubecontroller/nodenetworkconfig)
func newAzure() *ipam {
	// Azure has them in kube-system: one of another namespace is nobody's.
	return newNodeBook("nodenetworkconfigs", "/apis/acn.azure.com/v1alpha/namespaces/kube-system/", readAzure)
}

// azureObject is what is read of a NodeNetworkConfig.
type azureObject struct {
	object
	Status struct {
		NetworkContainers []struct {
			AssignmentMode, PrimaryIP, PrimaryIPV6 string
			IPAssignments                          []struct{ IP string }
		}
	}
}

// readAzure: a static container has a range, and maybe blocks. Of others each address is assigned; the primary one is no pod's, and its length
// is not that of a range.
func readAzure(o *azureObject) (a nodeAddresses) {
	for _, c := range o.Status.NetworkContainers {
		if c.AssignmentMode == "static" {
			a.ranges = append(a.ranges, c.PrimaryIP, c.PrimaryIPV6)
		}
		for _, assigned := range c.IPAssignments {
			a.ranges = append(a.ranges, assigned.IP)
		}
	}
	a.ranges = slices.DeleteFunc(a.ranges, func(text string) bool { return text == "" })
	return a
}
