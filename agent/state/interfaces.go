package state

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/agent/observe"
	"github.com/dupip/dupip/detector"
)

// origin is an [observe.Origin]. It holds for one boot of the node only.
type origin struct {
	Ifindex int      `json:"ifindex"`
	Name    string   `json:"name"`
	MAC     string   `json:"mac,omitzero"`
	Peer    string   `json:"peer,omitzero"`
	Netns   uint64   `json:"netnsCookie,omitzero"`
	Role    int      `json:"role,omitzero"`
	Pod     *api.Pod `json:"pod,omitzero"`
}

type origins []origin

// UnmarshalJSON limits the number before it allocates memory.
func (o *origins) UnmarshalJSON(data []byte) (err error) {
	*o, err = bounded[origin](data, observe.MaxOrigins, "interfaces")
	return err
}

func newOrigin(o observe.Origin) origin {
	d := origin{
		Ifindex: o.HostEnd.Ifindex, Name: sanitize(o.HostEnd.Name), MAC: o.HostEnd.MAC, Peer: sanitize(o.Peer), Netns: o.Netns, Role: int(o.Role),
		Pod: api.NewPod(o.Pod),
	}
	if d.Pod != nil && checkTime("", o.CreatedAt, false) == nil {
		d.Pod.CreatedAt = o.CreatedAt
	}
	return d
}

// parse validates an origin.
func (d *origin) parse() (o observe.Origin, err error) {
	pod := cmp.Or(d.Pod, new(api.Pod))
	if err := errors.Join(
		checkName("interface", d.Name), checkText("MAC", d.MAC), checkText("peer", d.Peer), checkText("namespace", pod.Namespace),
		checkText("pod", pod.Name), checkText("uid", pod.UID), checkTime("created", pod.CreatedAt, false),
	); err != nil {
		return o, err
	}
	if d.Ifindex <= 0 || d.Role < 0 || d.Role > int(observe.PrimaryByRoute) {
		return o, errors.New("no index, or an unknown role")
	}
	return observe.Origin{
		HostEnd: observe.HostEnd{Ifindex: d.Ifindex, Name: d.Name, MAC: d.MAC}, Peer: d.Peer, Netns: d.Netns, Role: observe.Role(d.Role),
		Pod: detector.Pod{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}, CreatedAt: pod.CreatedAt,
	}, nil
}

// encodeOrigins encodes a list in the order of the interfaces' indexes, as far as it fits into room, and reduces it.
func encodeOrigins(list []observe.Origin, room *int) ([][]byte, error) {
	slices.SortFunc(list, func(a, b observe.Origin) int { return cmp.Compare(a.HostEnd.Ifindex, b.HostEnd.Ifindex) })
	var encoded [][]byte
	for _, o := range list[:min(len(list), observe.MaxOrigins)] {
		data, err := json.Marshal(newOrigin(o))
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
