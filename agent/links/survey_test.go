package links_test

import (
	"maps"
	"net"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/agent/internal/ownnetns"
	"github.com/dupip/dupip/agent/links"
)

// A survey finds what a watcher would observe, and not the uplink.
func TestSurvey(t *testing.T) {
	pod, outside := ownnetns.NewPod(t), ownnetns.NewPod(t)
	addVeth(t, pod, "surveyed", "10.6.0.1/32")
	uplink := addVeth(t, outside, "leaving")
	address, err := netlink.ParseAddr("10.6.9.1/24")
	must(t, err)
	must(t, netlink.AddrAdd(uplink, address))
	must(t, netlink.RouteAdd(&netlink.Route{LinkIndex: uplink.Index, Gw: net.IPv4(10, 6, 9, 254)}))
	pods, unsupported, err := links.Survey(false)
	must(t, err)
	found := false
	for _, p := range pods {
		switch p.Name {
		case "surveyed":
			found = true
			if !p.Seen || p.Netns.Pid != pod.Pid || p.InnerIndex == 0 {
				t.Errorf("got %+v, want the netns of pid %d", p, pod.Pid)
			}
		case "leaving":
			t.Error("the survey has the uplink as a pod's interface")
		}
	}
	if !found {
		t.Errorf("not found among %+v", pods)
	}
	if len(unsupported) > 0 {
		t.Errorf("unsupported: %+v", unsupported)
	}
	must(t, links.CanWatch())
}

// A survey does not find a second uplink, nor a third one to the same place. It finds a pod whose netns is hidden.
func TestSurveyKnowsHiddenUplinks(t *testing.T) {
	held := hiddenNetns(t)
	addHidden(t, held, "second", 0, 0, "10.6.7.1/24")
	addHidden(t, held, "third", 0, 0)
	addHidden(t, hiddenNetns(t), "concealed", 0, 0, "10.6.8.1/32")
	pod := ownnetns.NewPod(t)
	addTo(t, addVeth(t, pod, "boxed", "10.6.6.2/28"), "10.6.6.1/28")
	pods, _, err := links.Survey(false)
	must(t, err)
	found := make(map[string]bool)
	for _, p := range pods {
		found[p.Name] = p.Seen
	}
	if want := map[string]bool{"concealed": false, "boxed": true}; !maps.Equal(found, want) {
		t.Errorf("found %v, want %v", found, want)
	}
}
