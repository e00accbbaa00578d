package pods

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/dupip/dupip/document"
)

// CheckRuntime connects to the runtime that a [Resolver] for this socket would use, and disconnects again. It
// takes at most 2 s for each socket that exists. The error is [ErrNoSocket], has a gRPC code, or is that
// of [New]. Status.Disabled is set for the last one, and if names are disabled.
func CheckRuntime(ctx context.Context, socket string) (Status, error) {
	sockets, err := parseSocket(socket)
	if err != nil || len(sockets) == 0 {
		return Status{Disabled: true}, err
	}
	silenceGRPC()
	rt, err := connect(ctx, sockets)
	if errors.Is(err, ErrNoSocket) {
		err = fmt.Errorf("%w at %s", err, cmp.Or(socket, "the usual places"))
	}
	if err != nil {
		return Status{}, err
	}
	defer rt.close()
	return Status{RuntimeStatus: document.RuntimeStatus{Socket: rt.socket, Name: rt.name, Version: rt.version, Connected: true}}, nil
}
