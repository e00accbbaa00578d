package alerting

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/bcrypt"

	"github.com/dupip/dupip/internal/testneeds"
	"github.com/dupip/dupip/tests/lab"
)

// Without Prometheus, the agents of both nodes tell Alertmanagers themselves, and one runs a program. One Alertmanager is killed and
// started again while the duplicate is there, and is away when it ends; another one wants TLS and a password, which is wrong at first.
func TestWithoutPrometheus(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	d := newDesk(l)
	address := d.node.Uplink().String()
	secured := d.startSecured(address)
	d.write("http.yaml", "basic_auth: {username: agents, password_file: password}\ntls_config: {ca_file: cert.pem}\n")
	d.write("password", "wrong")
	d.write("tell", "#!/bin/sh\nexec cat >> "+filepath.Join(d.dir, "told")+"\n")
	l.Do(os.Chmod(filepath.Join(d.dir, "tell"), 0o755))
	d.startAlertmanager()
	agents := l.Cluster(2, "--alertmanager", "http://"+net.JoinHostPort(address, alertmanagerPort), "--alertmanager", secured,
		"--alertmanager-http-config", filepath.Join(d.dir, "http.yaml"), "--on-conflict", filepath.Join(d.dir, "tell"))
	home := agents[0].Node
	first, second := home.RoutedIPv4(10), home.RoutedIPv4(11)
	l.Pod(home, "older", lab.PodOptions{Style: lab.Routed, Addrs: []netip.Addr{first, second}})
	newcomer := l.Pod(agents[1].Node, "newcomer", lab.PodOptions{Style: lab.Routed, Addrs: []netip.Addr{agents[1].Node.RoutedIPv4(10)}})

	began := time.Now()
	l.Do(newcomer.AddAddr(first))
	d.eventually("the alert", func() error { return d.holds(agents, first) })
	t.Logf("Alertmanager has it %.1f s after the newcomer took the address", time.Since(began).Seconds())
	d.notified("firing", 1)
	for _, a := range agents {
		d.tells(a, func(n []told) bool { return n[0].Sent > 0 && n[0].Error == "" })
		d.tells(a, func(n []told) bool { return n[1].Failed > 0 && strings.Contains(n[1].Error, "401 Unauthorized") })
	}
	// Either agent may have been the first.
	events := d.told(2)
	if !d.isLike(agents[0], events[0].Conflict) && !d.isLike(agents[0], events[1].Conflict) {
		t.Errorf("the program was told %v, the command prints something else", events)
	}

	l.Do(d.alertmanager.Kill())
	d.write("password", "right")
	l.Do(newcomer.AddAddr(second))
	for _, a := range agents {
		d.tells(a, func(n []told) bool { return n[0].Error != "" })
	}
	d.startAlertmanager()
	d.eventually("both alerts", func() error { return d.holds(agents, first, second) })
	for _, a := range agents {
		d.tells(a, func(n []told) bool { return n[1].Sent > 0 && n[1].Error == "" })
		if lines := strings.Count(a.Log(), "an Alertmanager does not take alerts"); lines != 2 {
			t.Errorf("%d lines about two Alertmanagers that failed", lines)
		}
	}
	d.eventually("a notification of the new Alertmanager", func() error { return d.count("firing", 2) })

	l.Do(d.alertmanager.Stop()) // it remembers what it has notified of
	l.Do(newcomer.DelAddr(first), newcomer.DelAddr(second))
	for _, a := range agents {
		d.tells(a, func(n []told) bool { return n[0].Error != "" })
		l.Eventually("the end", func() error {
			open, err := a.Client.Conflicts(t.Context(), false)
			if err == nil && len(open) > 0 {
				err = fmt.Errorf("%v is open", open)
			}
			return err
		})
	}
	if testneeds.IsRelease() {
		<-time.After(2 * time.Minute)
	}
	d.startAlertmanager()
	d.eventually("the news of the end", func() error { return d.count("resolved", 1) })
	d.eventually("the end in Alertmanager", d.none)
	l.Do(d.count("firing", 2))
	kinds := make(map[string]int)
	for _, e := range d.told(8) {
		kinds[e.Type]++
	}
	if diff := cmp.Diff(map[string]int{"confirmed": 4, "resolved": 4}, kinds); diff != "" { // two conflicts, two agents
		t.Errorf("the programs were told (-want +got):\n%s", diff)
	}
}

// holds returns an error unless Alertmanager has one alert about each address, and no other.
func (d *monitoring) holds(agents []*lab.Agent, addresses ...netip.Addr) error {
	groups, err := d.groups()
	if err != nil {
		return err
	}
	if len(groups) != 1 || len(groups[0].Alerts) != len(addresses) {
		return fmt.Errorf("Alertmanager holds %v, want alerts about %v", groups, addresses)
	}
	for _, a := range groups[0].Alerts {
		ip := a.Labels["ip"]
		want := map[string]string{"alertname": "DupipDuplicateAddress", "severity": "critical", "network": "default", "ip": ip, "cluster": a.Labels["cluster"]}
		if diff := cmp.Diff(want, a.Labels); diff != "" || a.Labels["cluster"] == "" || !slices.Contains(addresses, netip.MustParseAddr(ip)) {
			return lab.Final(fmt.Errorf("labels (-want +got):\n%s", diff))
		}
		for _, text := range []string{ip, agents[0].Node.ShortName(), agents[1].Node.ShortName()} {
			if !strings.Contains(a.Annotations["summary"], text) {
				return fmt.Errorf("the summary %q does not have %s", a.Annotations["summary"], text)
			}
		}
		d.t.Logf("%s\n%s", a.Annotations["summary"], a.Annotations["description"])
	}
	return nil
}

// startSecured starts an Alertmanager with TLS and a password, and returns its URL.
func (d *monitoring) startSecured(address string) string {
	d.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	d.t.Do(err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.ParseIP(address)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	d.t.Do(err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	d.t.Do(err)
	hash, err := bcrypt.GenerateFromPassword([]byte("right"), bcrypt.MinCost)
	d.t.Do(err)
	d.write("cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	d.write("key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
	d.writeYAML("web.yaml", map[string]any{
		"tls_server_config": map[string]any{"cert_file": "cert.pem", "key_file": "key.pem"},
		"basic_auth_users":  map[string]any{"agents": string(hash)},
	})
	const port = "9443"
	d.write("secured.yaml", "route: {receiver: nobody}\nreceivers: [{name: nobody}]\n")
	p := d.launchAlertmanager("secured", port, "--web.config.file", filepath.Join(d.dir, "web.yaml"))
	d.t.Cleanup(func() {
		if d.t.Failed() {
			d.t.Logf("log of the secured Alertmanager:\n%s", p.Log())
		}
	})
	return "https://" + net.JoinHostPort(address, port)
}

// told is one whom an agent tells.
type told struct {
	Kind                  string
	Sent, Failed, Dropped int
	Error                 string
}

// tells waits until the status of an agent says so of those whom it tells: two Alertmanagers and a program.
func (d *monitoring) tells(a *lab.Agent, ok func([]told) bool) {
	d.t.Helper()
	d.eventually("whom the agent tells", func() error {
		status, err := a.Client.Status(d.t.Context())
		if err != nil {
			return err
		}
		var list []told
		data, err := json.Marshal(status["notifications"])
		if err == nil {
			err = json.Unmarshal(data, &list)
		}
		if err == nil && (len(list) != 3 || !ok(list)) {
			err = fmt.Errorf("%+v", list)
		}
		return err
	})
}

// event is what the program gets.
type event struct {
	Type     string
	Conflict map[string]any
}

// told waits until the program was told so often, and returns what.
func (d *monitoring) told(want int) (list []event) {
	d.t.Helper()
	d.eventually("the program", func() error {
		data, err := os.ReadFile(filepath.Join(d.dir, "told"))
		list = nil
		for line := range strings.Lines(string(data)) {
			var e event
			err = errors.Join(err, json.Unmarshal([]byte(line), &e))
			list = append(list, e)
		}
		if err == nil && len(list) < want {
			err = fmt.Errorf("it was told of %d events, want %d", len(list), want)
		}
		return err
	})
	return list
}

// isLike reports whether the program got what the command prints. The times of other nodes are converted for each answer.
func (d *monitoring) isLike(a *lab.Agent, got map[string]any) bool {
	d.t.Helper()
	out, err := a.CLI(d.t.Context(), "conflicts", "--cluster", "-o", "json")
	d.t.Do(err)
	var doc struct{ Conflicts []map[string]any }
	d.t.Do(json.Unmarshal([]byte(out), &doc))
	if len(doc.Conflicts) != 1 {
		d.t.Fatalf("the command prints %s", out)
	}
	isTime := cmp.FilterValues(func(x, y string) bool {
		_, xErr := time.Parse(time.RFC3339Nano, x)
		_, yErr := time.Parse(time.RFC3339Nano, y)
		return xErr == nil && yErr == nil
	}, cmp.Ignore())
	diff := cmp.Diff(doc.Conflicts[0], got, isTime)
	if diff != "" {
		d.t.Logf("the program was told (-printed +told):\n%s", diff)
	}
	return diff == ""
}
