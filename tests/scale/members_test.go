package scale

import (
	"log/slog"

	"github.com/dupip/dupip/gossip"
	"github.com/dupip/dupip/gossip/members"
	"github.com/dupip/dupip/tests/scale/simnet"
)

// realMembers is the network of a real agent: package members, over a simulated transport.
type realMembers struct{ *members.Members }

func openMembers(opts members.Options) (gossip.Network, error) {
	list, err := members.Open(opts)
	if err != nil {
		return nil, err
	}
	return realMembers{list}, nil
}

// membership is how a node takes part in a cluster.
func membership(i int, epoch int64, endpoint *simnet.Endpoint) members.Options {
	var join []string
	for i := range seeds {
		join = append(join, addrOf(i).String())
	}
	return members.Options{
		Log: slog.New(slog.DiscardHandler), Node: nodeName(i), Boot: bootID(i), Epoch: epoch, Version: "scale",
		Label: label, Advertise: endpoint.Addr().Addr().String(), Join: join, Transport: endpoint,
	}
}

// List is empty: a simulation of 500 nodes would spend most of its time on the lists.
func (m realMembers) List() []members.Member { return nil }

// Status is empty for the same reason.
func (m realMembers) Status() members.Status { return members.Status{} }
