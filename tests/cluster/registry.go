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

// Registry starts a registry of images and charts beside the API server, whose certificate the machines and the administrator trust. It returns
// its address, with the port.
func (c *Cluster) Registry() string {
	c.Helper()
	c.Do(c.pki.issue("registry", "registry", nil, c.control.Uplink().String()))
	address := net.JoinHostPort(c.control.Uplink().String(), "5000")
	var listener net.Listener
	c.Do(c.control.Exec(func() (err error) {
		listener, err = net.Listen("tcp", address)
		return err
	}))
	quiet := log.New(io.Discard, "", 0)
	server := &http.Server{Handler: registry.New(registry.Logger(quiet)), ErrorLog: quiet, Protocols: new(http.Protocols)}
	// It holds a lock while it reads a blob. By HTTP/2, those that wait for the lock can use up the window of their one connection.
	server.Protocols.SetHTTP1(true)
	go func() { _ = server.ServeTLS(listener, c.pki.path("registry", "crt"), c.pki.path("registry", "key")) }()
	c.OnClose(server.Close)
	ca := c.pki.path("ca", "crt")
	c.Do(os.Mkdir(c.trusted(), 0o755), os.Symlink(ca, filepath.Join(c.trusted(), "ca.crt")))
	for _, m := range c.Machines {
		dir := filepath.Join(m.dir, "certs.d", address)
		c.Do(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "hosts.toml"), fmt.Appendf(nil, "[host.%q]\nca = %q\n", "https://"+address, ca), 0o644))
	}
	return address
}

// trusted is the folder with the certificates that the administrator's programs trust, beside those of this machine.
func (c *Cluster) trusted() string { return filepath.Join(c.dir, "trusted") }
