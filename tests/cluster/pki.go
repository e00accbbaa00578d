package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// authority signs the certificates of a cluster. Its files are in a folder: ca.crt, and for each certificate a .crt and a .key.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(dir string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a := &authority{dir: dir, key: key, cert: &x509.Certificate{
		Subject: pkix.Name{CommonName: "tests"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	return a, a.sign("ca", a.cert, key)
}

// sign writes NAME.crt and NAME.key for a certificate, and replaces it by what was signed.
func (a *authority) sign(name string, cert *x509.Certificate, key *ecdsa.PrivateKey) error {
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return err
	}
	cert.SerialNumber, cert.NotBefore, cert.NotAfter = serial, time.Now().Add(-time.Hour), time.Now().AddDate(1, 0, 0)
	signed, err := x509.CreateCertificate(rand.Reader, cert, a.cert, key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("sign the certificate of %s: %w", name, err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	parsed, err := x509.ParseCertificate(signed)
	if err != nil {
		return err
	}
	*cert = *parsed
	return errors.Join(
		os.WriteFile(a.path(name, "crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}), 0o644),
		os.WriteFile(a.path(name, "key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}), 0o600),
	)
}

func (a *authority) path(name, kind string) string { return filepath.Join(a.dir, name+"."+kind) }

// issue writes a certificate for a user of these groups, or for a server with these names and addresses.
func (a *authority) issue(name, user string, groups []string, hosts ...string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	cert := &x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			cert.IPAddresses = append(cert.IPAddresses, ip)
		} else {
			cert.DNSNames = append(cert.DNSNames, host)
		}
	}
	return a.sign(name, cert, key)
}

// kubeconfig issues a certificate and writes the NAME.conf with which a user calls a server.
func (a *authority) kubeconfig(server, name, user string, groups ...string) error {
	if err := a.issue(name, user, groups); err != nil {
		return err
	}
	text := strings.NewReplacer("SERVER", server, "CA", a.path("ca", "crt"), "CERT", a.path(name, "crt"), "KEY", a.path(name, "key")).Replace(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "SERVER", certificate-authority: "CA"}}]
users: [{name: u, user: {client-certificate: "CERT", client-key: "KEY"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
`)
	return os.WriteFile(a.path(name, "conf"), []byte(text), 0o600)
}

// client is the client of a user, on a node.
func (a *authority) client(n *lab.Node, name string) (*http.Client, error) {
	cert, err := tls.LoadX509KeyPair(a.path(name, "crt"), a.path(name, "key"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	client := n.HTTPClient()
	client.Timeout = lab.Patience(10 * time.Second)
	client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert}}
	return client, nil
}
