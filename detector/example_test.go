package detector_test

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/dupip/dupip/detector"
)

// Two pods announce one address. The caller sends the probes that the detector asks for; here both pods answer each of them at once.
func Example() {
	start := time.Date(2026, 1, 1, 3, 0, 0, 0, time.UTC)
	d := detector.New(detector.Options{Node: "node1"})
	key := detector.Key{Network: "default", IP: netip.MustParseAddr("10.0.0.7")}
	pods := make(map[detector.HolderID]detector.Holder)
	for i, name := range []string{"web-1", "web-2"} {
		id := detector.HolderID{Node: "node1", Netns: uint64(100 + i)}
		pods[id] = detector.Holder{
			ID: id, Interface: detector.Interface{Ifindex: uint32(10 + i), Generation: 1}, Pod: detector.Pod{Namespace: "shop", Name: name},
		}
	}

	var handle func(detector.Effects, time.Time)
	handle = func(effects detector.Effects, now time.Time) {
		for _, event := range effects.Events {
			fmt.Printf("%v: %s %s:", now.Sub(start), event.Conflict.Key.IP, event.Kind)
			for _, b := range event.Conflict.Holders {
				fmt.Printf(" %s/%s", b.Holder.Pod.Namespace, b.Holder.Pod.Name)
			}
			fmt.Println()
		}
		for _, p := range effects.Probes {
			handle(d.Probed(p, detector.Result{Outcome: detector.Sent}, now), now)
			handle(d.Observe(detector.Sighting{
				Key: p.Key, Holder: pods[p.Holder], Evidence: detector.Announced, Answer: true, Listed: true, At: now,
			}, now), now)
		}
	}
	for i := range pods {
		handle(d.Observe(detector.Sighting{Key: key, Holder: pods[i], Evidence: detector.Announced, Listed: true, At: start}, start), start)
	}
	for now := d.Next(); !now.After(start.Add(2 * time.Second)); now = d.Next() {
		handle(d.Tick(now), now)
	}
	// Output:
	// 0s: 10.0.0.7 suspected: shop/web-1 shop/web-2
	// 1s: 10.0.0.7 confirmed: shop/web-1 shop/web-2
}
