package state

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/dupip/dupip/agent/observe"
	"github.com/dupip/dupip/document"
)

// cleanOrigin cleans an origin, which holds for one boot of the node only, and reports whether it is valid.
func cleanOrigin(o *observe.Origin) bool {
	document.Clean(o, 0, time.Time{})
	return o.Ifindex > 0 && o.Role <= observe.PrimaryByRoute && o.Name != ""
}

// encodeOrigins encodes a list in the order of the interfaces' indexes, as far as it fits into room, and reduces it.
func encodeOrigins(list []observe.Origin, room *int) ([][]byte, error) {
	slices.SortFunc(list, func(a, b observe.Origin) int { return cmp.Compare(a.Ifindex, b.Ifindex) })
	var encoded [][]byte
	for _, o := range list[:min(len(list), observe.MaxOrigins)] {
		cleanOrigin(&o)
		data, err := json.Marshal(o)
		if err != nil {
			return nil, err
		}
		if *room -= len(data) + 1; *room < 0 {
			break
		}
		encoded = append(encoded, data)
	}
	return encoded, nil
}
