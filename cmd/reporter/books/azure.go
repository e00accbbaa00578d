package books

import (
	"encoding/json"
	"slices"
)

// newAzure returns the book of Azure CNS: NodeNetworkConfigs, which say what addresses or range a node has, and no pods. Only the format is
// known, it never ran with Azure. (github.com/Azure/azure-container-networking: crd/nodenetworkconfig/api/v1alpha,
// cns/kubecontroller/nodenetworkconfig)
func newAzure() ipam {
	// Azure has them in kube-system: one of another namespace is nobody's.
	return newNodeBook("nodenetworkconfigs", "/apis/acn.azure.com/v1alpha/namespaces/kube-system/", readAzure)
}

// readAzure: a static container has a range, and maybe blocks. Of others each address is assigned; the primary one is no pod's, and its length
// is not that of a range.
func readAzure(text json.RawMessage) (o nodeObject, err error) {
	var body struct {
		Status struct {
			NetworkContainers []struct {
				AssignmentMode, PrimaryIP, PrimaryIPV6 string
				IPAssignments                          []struct{ IP string }
			}
		}
	}
	if err := json.Unmarshal(text, &body); err != nil {
		return o, err
	}
	for _, c := range body.Status.NetworkContainers {
		if c.AssignmentMode == "static" {
			o.ranges = append(o.ranges, c.PrimaryIP, c.PrimaryIPV6)
		}
		for _, a := range c.IPAssignments {
			o.ranges = append(o.ranges, a.IP)
		}
	}
	o.ranges = slices.DeleteFunc(o.ranges, func(text string) bool { return text == "" })
	return o, nil
}
