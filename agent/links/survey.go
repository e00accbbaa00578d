package links

import (
	"log/slog"
	"os"
	"time"

	"github.com/dupip/dupip/agent/netns"
)

// Survey lists the interfaces that a [Watcher] of the calling thread's netns would observe, and the
// pod devices that it could not. It changes none of them. insideToo: the observer could be attached inside of a netns.
// InnerIndex is also that of the pod's end of a pair.
func Survey(insideToo bool) (pods, devices []Interface, err error) {
	all, err := listLinks()
	if err != nil {
		return nil, nil, err
	}
	routes, err := listDefaultRoutes()
	if err != nil {
		return nil, nil, err
	}
	signs, err := readUplinkSigns(routes)
	if err != nil {
		return nil, nil, err
	}
	finder, err := netns.NewFinder()
	if err != nil {
		return nil, nil, err
	}
	defer finder.Close()
	if err := finder.Search(); err != nil {
		return nil, nil, err
	}
	for _, link := range all {
		attrs := link.Attrs()
		ref, found := finder.Ref(attrs.NetNsID)
		if !routes.leadsToNetns(link) || !found && signs.match(attrs.Index, attrs.NetNsID, attrs.HardwareAddr) {
			continue // as in table.classify
		}
		pods = append(pods, Interface{Name: attrs.Name, InnerIndex: attrs.ParentIndex, Netns: ref, Seen: found})
	}
	refs, err := finder.Refs()
	others := inside{log: slog.New(slog.DiscardHandler), identify: func(*os.File) int { return 0 }}
	others.setAll(refs, true, time.Now())
	others.list(time.Now(), len(refs))
	for _, ns := range others.namespaces {
		for _, d := range ns.devices {
			if ns.observable(d, insideToo) {
				pods = append(pods, Interface{Name: d.Name, InnerIndex: d.Index, Netns: ns.ref, Seen: true})
			}
		}
	}
	return pods, append(unsupportedNetkit(all), others.unsupported(insideToo)...), err
}

// CanWatch returns an error if this process may not watch the addresses of all namespaces. The error
// names the missing capability.
func CanWatch() error {
	watch, err := watchAddresses(watchBuffer, nil)
	if err != nil {
		return err
	}
	return watch.conn.Close()
}
