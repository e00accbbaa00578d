package books

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// cnsEndpoints is the file in which Azure CNS keeps the addresses of sandboxes, with its option ManageEndpointState
	// (endpointStoreLocationLinux, github.com/Azure/azure-container-networking/cns/service).
	cnsEndpoints = "/var/run/azure-cns/azure-endpoints.json"
	// maxEndpoints is the size of the largest such file in bytes. An endpoint has 300 to 500, a node a few hundred endpoints.
	// To read hostile JSON of this size allocates 200 MB in all, most of which is garbage at once.
	maxEndpoints = 4 << 20
)

// cnsPlugins are the types of IPAM in CNI's configuration that get their addresses from CNS: the plugin azure-ipam, and
// azure-vnet's own. The older azure-vnet-ipam has another store.
var cnsPlugins = []string{"azure-ipam", "azure-cns"}

// cnsEndpoint is what CNS keeps of a sandbox (EndpointInfo and IPInfo, github.com/Azure/azure-container-networking/cns/restserver).
type cnsEndpoint struct {
	IfnameToIPMap map[string]struct {
		IPv4, IPv6 []struct{ IP netip.Addr }
		NICType    string
	}
}

// readEndpoints reads CNS's file, unless it is the one of the last reading. A file that does not exist is an error, because
// CNS may keep its endpoints elsewhere, or leave them to azure-vnet: then its pods have addresses and no endpoints.
func readEndpoints(root hostRoot, store string, known map[netip.Addr]Reservation) (all map[netip.Addr]Reservation, same bool, err error) {
	file, err := root.open(store, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, fmt.Errorf("%w: Azure CNS keeps no endpoints there", err)
	}
	if err != nil {
		return nil, false, err
	}
	defer file.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return nil, false, fmt.Errorf("reading the node's %s: %w", store, err)
	}
	for _, r := range known { // all are of one file
		if r.version == versionOf(&stat) {
			return known, true, nil
		}
		break
	}
	data, err := readAll(file, store, maxEndpoints)
	if err != nil {
		return nil, false, err
	}
	if all, err = parseEndpoints(data, versionOf(&stat)); err != nil {
		return nil, false, fmt.Errorf("reading the node's %s: %w", store, err)
	}
	return all, len(all) == 0 && known != nil && len(known) == 0, nil
}

// maxAmong is of how many sandboxes with one address is known which they are.
const maxAmong = 8

// among are the sandboxes with an address, of which there is one more.
func among(r Reservation, sandbox string) []string {
	list := r.among
	if list == nil {
		list = []string{r.Sandbox}
	}
	switch {
	case slices.Contains(list, sandbox):
		return list
	case len(list) == maxAmong:
		tooManySandboxes.Exceeded(1)
		return []string{""}
	}
	return append(list, sandbox)
}

// parseEndpoints reads the endpoints, which are by sandbox. An address of two sandboxes, which CNS's own faults leave behind, is
// reserved for one of them, and the file does not tell for which: its order and its times say nothing.
func parseEndpoints(data []byte, of version) (map[netip.Addr]Reservation, error) {
	var file struct{ Endpoints map[string]cnsEndpoint }
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, err
	}
	if file.Endpoints == nil {
		return nil, errors.New("it has no endpoints")
	}
	if n := len(file.Endpoints); n > maxReservations {
		return nil, fmt.Errorf("it has %d endpoints; %d are possible", n, maxReservations)
	}
	all := make(map[netip.Addr]Reservation, len(file.Endpoints))
	for sandbox, e := range file.Endpoints {
		if strings.Contains(sandbox, "-") {
			sandbox = "" // the beginning of an id, and an interface: taken over from an old azure-vnet
		}
		for _, nic := range e.IfnameToIPMap {
			if nic.NICType != "" && nic.NICType != "InfraNIC" {
				continue // a network card that the pod has for itself, whose address is not of the node's pool
			}
			for _, a := range append(nic.IPv4, nic.IPv6...) {
				ip := a.IP.Unmap()
				if !ip.IsGlobalUnicast() || ip.Zone() != "" {
					continue
				}
				r := Reservation{Sandbox: sandbox, version: of}
				if other, twice := all[ip]; twice && other.Sandbox != sandbox {
					r.Sandbox, r.among = "", among(other, sandbox)
				}
				all[ip] = r
			}
		}
	}
	return all, nil
}
