package state

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"

	"github.com/dupip/dupip/agent/observe"
)

// origins hold for one boot of the node only.
type origins []observe.Origin

// UnmarshalJSON limits the number before it allocates memory.
func (o *origins) UnmarshalJSON(data []byte) (err error) {
	*o, err = bounded[observe.Origin](data, observe.MaxOrigins, "interfaces")
	return err
}

// checkOrigin validates an origin.
func checkOrigin(o observe.Origin) error {
	if o.Ifindex <= 0 || o.Role > observe.PrimaryByRoute {
		return errors.New("no index, or an unknown role")
	}
	return errors.Join(
		checkName("interface", o.Name), checkText("MAC", o.MAC), checkText("peer", o.Peer), checkText("namespace", o.Pod.Namespace),
		checkText("pod", o.Pod.Name), checkText("uid", o.Pod.UID), checkTime("created", o.CreatedAt, false),
	)
}

// encodeOrigins encodes a list in the order of the interfaces' indexes, as far as it fits into room, and reduces it.
func encodeOrigins(list []observe.Origin, room *int) ([][]byte, error) {
	slices.SortFunc(list, func(a, b observe.Origin) int { return cmp.Compare(a.Ifindex, b.Ifindex) })
	var encoded [][]byte
	for _, o := range list[:min(len(list), observe.MaxOrigins)] {
		o.Name, o.Peer = sanitize(o.Name), sanitize(o.Peer)
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
