package cluster

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/registry"
)

// Registry starts a registry of images and charts beside the API server, without TLS, from which the machines pull. It returns its address,
// with the port.
func (c *Cluster) Registry() string {
	c.Helper()
	address := net.JoinHostPort(c.control.Uplink().String(), "5000")
	var listener net.Listener
	c.Do(c.control.Exec(func() (err error) {
		listener, err = net.Listen("tcp", address)
		return err
	}))
	server := &http.Server{Handler: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	go func() { _ = server.Serve(listener) }()
	c.OnClose(server.Close)
	for _, m := range c.Machines {
		dir := filepath.Join(m.dir, "certs.d", address)
		c.Do(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "hosts.toml"), fmt.Appendf(nil, "[host.%q]\n", "http://"+address), 0o644))
	}
	return address
}
