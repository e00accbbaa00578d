package pods

import (
	"cmp"
	"context"
	"errors"
	"fmt"
)

// CheckRuntime connects to the runtime that a [Resolver] for this socket would use, and disconnects
// again. It takes 2 s at most for each socket that exists. The error is [ErrNoSocket], has a
// code of gRPC, or is that of [New]; then Disabled is set, as it is where nobody is asked.
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
	return Status{Socket: rt.socket, Runtime: rt.name, Version: rt.version, Connected: true}, nil
}
