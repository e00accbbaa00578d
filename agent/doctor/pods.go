package doctor

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/netns"
)

// visit is what a look at all pods came to.
type visit struct {
	pods        []links.Surveyed
	unsupported []links.Interface
	// hidden and closed are interfaces with a netns that was not found, or not entered,
	// the last time because of err.
	hidden, closed []string
	err            error
	entered        int
}

// visitPods lists the pod interfaces as an agent would, and looks into the namespaces
// behind them. Where one fails it tries again: pods come and go.
func visitPods(ctx context.Context) (visit, error) {
	const tries, pause = 3, 200 * time.Millisecond
	for try := 1; ; try++ {
		v, err := visitOnce(ctx)
		if err != nil || len(v.hidden)+len(v.closed) == 0 || try == tries {
			return v, err
		}
		select {
		case <-ctx.Done():
			return v, nil
		case <-time.After(pause):
		}
	}
}

func visitOnce(ctx context.Context) (v visit, err error) {
	if v.pods, v.unsupported, err = links.Survey(); err != nil {
		return v, err
	}
	for _, pod := range v.pods {
		switch {
		case !pod.Found:
			v.hidden = append(v.hidden, pod.Name)
		case ctx.Err() != nil:
			return v, ctx.Err()
		default:
			if err := look(pod); err != nil {
				v.closed, v.err = append(v.closed, pod.Name), err
				continue
			}
			v.entered++
		}
	}
	return v, nil
}

// checkPods: are there pods, and can what is behind their interfaces be seen?
func checkPods(ctx context.Context, known *facts) finding {
	v, err := visitPods(ctx)
	if err != nil {
		return fail("an agent sees as little: see \"capabilities\" and \"security\"", "listing pods: %v", err)
	}
	if len(v.pods) == 0 {
		return noPods(known, v.unsupported)
	}
	count := plural(len(v.pods), "pod interface")
	switch {
	case known.uid != 0:
		return skip("%s; what is behind them needs root", count)
	case len(v.hidden) == len(v.pods):
		return fail("see \"processes\" and \"netns names\": one of them has to lead to the pods",
			"%s, and no network namespace behind any was found", count)
	case len(v.closed) > 0 && v.entered == 0:
		return fail("see \"capabilities\" and \"security\": entering network namespaces needs CAP_SYS_ADMIN",
			"%s, and no network namespace could be entered: %v", count, v.err)
	case len(v.closed) > 0:
		return warn("if that stays so, see \"capabilities\"; a pod that ends at this moment is no trouble",
			"%s; not entered behind %s: %v", count, some(v.closed), v.err)
	case len(v.hidden) > 0:
		return warn("see \"processes\" and \"netns names\"; they are observed, but what they forward cannot be told from what they have",
			"%s; no network namespace found behind %s", count, some(v.hidden))
	case len(v.unsupported) > 0:
		return warn("duplicates among them go unnoticed: veths are what dupip observes",
			"%s; besides %s that cannot be observed", count, kinds(v.unsupported))
	}
	return ok("%s, all namespaces found and entered", count)
}

// noPods: right on a node without pods, the usual sign of a pod without hostNetwork elsewhere.
func noPods(known *facts, unsupported []links.Interface) finding {
	switch {
	case !known.place.hostNetns():
		return fail("set hostNetwork: true in the pod; outside of pods: run it where the pods' veths are",
			"no pod interface, and this is not the node's network namespace")
	case len(unsupported) > 0:
		return fail("duplicates among them go unnoticed: dupip needs a network plugin that gives pods veths",
			"no pod interface that can be observed, but %s", kinds(unsupported))
	}
	return ok("no pod interface yet")
}

func look(pod links.Surveyed) error {
	file, err := os.Open(pod.Place.Path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = netns.Look(file, pod.Peer)
	return err
}

// kinds counts devices that cannot be observed by what they are.
func kinds(unsupported []links.Interface) string {
	counts := make(map[string]int)
	for _, device := range unsupported {
		kind, _, _ := strings.Cut(device.Reason, " ")
		counts[kind]++
	}
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[kind], kind))
	}
	return strings.Join(parts, ", ") + " devices"
}
