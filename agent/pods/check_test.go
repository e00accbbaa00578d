package pods_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dupip/dupip/agent/pods"
)

func TestProbe(t *testing.T) {
	there, hanging, none := newFake(t), newFake(t), filepath.Join(t.TempDir(), "none.sock")
	hanging.set("Version")
	for _, test := range []struct {
		socket, want string
		disabled     bool
		code         codes.Code
	}{
		{there.socket, "", false, codes.OK},
		{"unix://" + there.socket, "", false, codes.OK},
		{"off", "", true, codes.OK},
		{"none", "", true, codes.OK},
		{"cri.sock", "absolute path", true, codes.Unknown},
		{"http://cri", "Unix socket", true, codes.Unknown},
		{none, none, false, codes.Unknown},
		{hanging.socket, hanging.socket, false, codes.DeadlineExceeded},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		got, err := pods.CheckRuntime(ctx, test.socket)
		if got.Disabled != test.disabled || (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) || status.Code(err) != test.code {
			t.Errorf("%s: %+v, %v; want an error with %q, %v", test.socket, got, err, test.want, test.code)
		}
		if missing := errors.Is(err, pods.ErrNoSocket); missing != (test.socket == none) {
			t.Errorf("%s: no socket: %t", test.socket, missing)
		}
		if err == nil && !test.disabled && (!got.Connected || got.Socket != there.socket || got.Name == "") {
			t.Errorf("%s: %+v", test.socket, got)
		}
		if ctx.Err() != nil {
			t.Errorf("%s: it takes too long", test.socket)
		}
	}
}
