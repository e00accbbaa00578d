package lab

import (
	"context"
	"net"
	"net/http"
)

// HTTPClient is a client that dials inside the netns. It is for addresses only: names may be
// looked up outside. Each request has a connection of its own, because a server that was
// started again must not meet old ones.
func (n *Netns) HTTPClient() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (conn net.Conn, err error) {
			err = n.Exec(func() error {
				conn, err = new(net.Dialer).DialContext(ctx, network, address)
				return err
			})
			return conn, err
		},
	}}
}
