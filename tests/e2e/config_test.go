package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/internal/testneeds"
	"github.com/dupip/dupip/tests/lab"
)

// configFile is a configuration that a test changes.
type configFile struct {
	t    *lab.T
	path string
}

func newConfig(t *lab.T, text string) *configFile {
	t.Helper()
	c := &configFile{t, filepath.Join(t.TempDir(), "dupip.yaml")}
	c.replace(text)
	return c
}

// replace puts another file in the place, as editors do.
func (c *configFile) replace(text string) {
	c.t.Helper()
	next := c.path + ".next"
	c.t.Do(os.WriteFile(next, []byte(text), 0o600), os.Rename(next, c.path))
}

const twoTenants = `
networks:
  - name: tenant-a
    match: {bridges: [vrf-a]}
  - name: tenant-b
    match: {bridges: [vrf-b]}
`

// TestReload: rules take effect on what is there, whichever way a new file arrives, and
// a bad one changes nothing.
func TestReload(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	for _, bridge := range []string{"vrf-a", "vrf-b"} {
		l.Do(n.AddBridge(bridge, netip.MustParsePrefix("10.44.0.1/24"), netip.MustParsePrefix("fd00:44::1/64")))
	}
	c := newConfig(l, "")
	a := l.Agent(n, "--config", c.path)
	w := l.Watch(a)
	ips := lab.IPs("10.44.0.8", "fd00:44::8")
	pods := map[string]*lab.Pod{
		"tenant-a": l.Pod(n, "a", lab.PodOptions{Bridge: "vrf-a", Addrs: ips}),
		"tenant-b": l.Pod(n, "b", lab.PodOptions{Bridge: "vrf-b", Addrs: ips}),
	}
	ids := make(map[string]bool)
	for _, ip := range ips {
		e, err := w.WaitConfirmed(ip, patience)
		l.Do(err)
		ids[e.Conflict.ID] = true
	}

	c.replace(twoTenants)
	l.Do(unix.Kill(a.PID(), unix.SIGHUP))
	for id := range ids {
		_, err := w.Wait(patience, func(e lab.Event) bool { return e.Type == "resolved" && e.Conflict.ID == id })
		l.Do(err)
	}
	for network, p := range pods {
		for _, ip := range ips {
			_, err := a.Client.WaitBinding(within(l, patience), ip, func(b lab.Binding) bool {
				return b.Network == network && b.Netns == p.Name && b.Evidence == "announced"
			})
			l.Do(err)
		}
	}

	c.replace("networks:\n  - name: tenant-a\n    macth: {bridges: [vrf-a]}\n")
	l.Eventually("the bad file is noticed", func() error {
		m, err := a.Scrape(l.Context())
		if err == nil && m["dupip_config_last_reload_success"] != 0 {
			err = errors.New("the last reload counts as a success")
		}
		return err
	})
	// The metric is the first to know.
	l.Eventually("the bad file is reported", func() error {
		out, err := a.CLI(l.Context(), "status")
		if err != nil {
			return err
		}
		for _, text := range []string{a.Log(), out} {
			flat := strings.Join(strings.Fields(text), " ")
			if !strings.Contains(flat, "line 3") || !strings.Contains(flat, "macth") {
				return fmt.Errorf("line 3 and its unknown key are not in:\n%s", text)
			}
		}
		return nil
	})
	open, err := a.Client.Conflicts(l.Context(), false)
	l.Do(err)
	if len(open) != 0 {
		t.Errorf("the bad file brought conflicts: %+v", open)
	}

	// Without SIGHUP: the change is noticed by itself.
	c.replace("shared: [192.0.2.1]\n")
	for _, ip := range ips {
		_, err := w.Wait(2*patience, func(e lab.Event) bool {
			return e.Type == "confirmed" && e.Conflict.IP == ip && !ids[e.Conflict.ID]
		})
		l.Do(err)
	}

	// What is declared shared is no conflict any more.
	c.replace("shared: [10.44.0.0/24]\n")
	_, err = w.Wait(2*patience, func(e lab.Event) bool {
		return e.Type == "resolved" && e.Conflict.IP == ips[0] && strings.Contains(e.Reason, "shared")
	})
	l.Do(err)
}

// TestSolicitOff: in such a network nothing is probed and so nothing is confirmed, which the agent
// reports.
func TestSolicitOff(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	c := newConfig(l, "networks: [{name: default, solicit: off}]\n")
	a := l.Agent(n, "--config", c.path)
	w := l.Watch(a)
	ip := n.IPv4(33)
	for _, name := range []string{"older", "newcomer"} {
		p := l.Pod(n, name, lab.PodOptions{Addrs: []netip.Addr{ip}})
		l.Eventually("the pod is seen", func() error {
			l.Do(p.SendUDP(ip, n.IPv4(1), 1))
			bindings, err := a.Client.Bindings(l.Context(), ip)
			for _, b := range bindings {
				if b.Netns == p.Name {
					return err
				}
			}
			return errors.Join(err, errors.New("it has no binding"))
		})
	}
	_, err := w.WaitType("suspected", ip, patience)
	l.Do(err)
	if err := w.NeverConfirmed(3 * time.Second); err != nil {
		t.Error(err)
	}
	m, err := a.Scrape(l.Context())
	l.Do(err)
	if n := m[`dupip_solicitations_total{purpose="verify"}`] + m[`dupip_solicitations_total{purpose="refresh"}`]; n != 0 {
		t.Errorf("%v solicitations were sent", n)
	}
	out, err := a.CLI(l.Context(), "explain", ip.String())
	l.Do(err)
	if !strings.Contains(strings.Join(strings.Fields(out), " "), "solicitation is off in network default") {
		t.Errorf("explain lacks the reason:\n%s", out)
	}
	// Switched on again, it is settled soon.
	c.replace("")
	_, err = w.WaitConfirmed(ip, time.Minute)
	l.Do(err)
}

// TestIgnored: an ignored interface has no program of ours, and is counted.
func TestIgnored(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	c := newConfig(l, `ignore: {interfaces: ["test*"]}`)
	a := l.Agent(n, "--config", c.path)
	ignored := l.Pod(n, "ignored", lab.PodOptions{HostInterface: "test0", Addrs: []netip.Addr{n.IPv4(34)}})
	other := l.Pod(n, "other", lab.PodOptions{Addrs: []netip.Addr{n.IPv4(35)}})
	_, err := a.Client.WaitBinding(within(l, patience), n.IPv4(35), func(b lab.Binding) bool { return b.Netns == other.Name })
	l.Do(err)
	check := func(state string, programs int) {
		l.Eventually("the interface is "+state, func() error {
			i, err := interfaceOf(l, a, ignored.HostInterface)
			if err != nil {
				return err
			}
			found, err := programsOf(l, n)
			if err == nil && (i.State != state || found[ignored.HostInterface].TCX != programs) {
				err = fmt.Errorf("state %s with %d programs", i.State, found[ignored.HostInterface].TCX)
			}
			return err
		})
	}
	check("ignored", 0)
	m, err := a.Scrape(l.Context())
	l.Do(err)
	if got := m[`dupip_interfaces{state="ignored"}`]; got != 1 {
		t.Errorf("the metric counts %v ignored interfaces, want 1", got)
	}
	// One that is deleted is not counted any more.
	second := l.Pod(n, "second", lab.PodOptions{HostInterface: "test1"})
	counted := func(want float64) {
		t.Helper()
		l.Eventually("ignored interfaces are counted", func() error {
			m, err := a.Scrape(l.Context())
			if got := m[`dupip_interfaces{state="ignored"}`]; err == nil && got != want {
				err = fmt.Errorf("%v are, want %v", got, want)
			}
			return err
		})
	}
	counted(2)
	l.Do(second.Delete())
	counted(1)
	c.replace("")
	l.Do(unix.Kill(a.PID(), unix.SIGHUP))
	check("attached", 1)
	_, err = a.Client.WaitBinding(within(l, patience), n.IPv4(34), func(b lab.Binding) bool { return b.Netns == ignored.Name })
	l.Do(err)
}

// TestBadConfigAtStart: there is nothing to fall back to, so it is an error, with the line.
func TestBadConfigAtStart(t *testing.T) {
	testneeds.Root(t)
	path := filepath.Join(t.TempDir(), "dupip.yaml")
	if err := os.WriteFile(path, []byte("shared:\n  - 10.0.0.0/8\n  - 10.0.0.300\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantOneLine(t, dupip(t, nil, "agent", "--config", path), path, "line 3", "10.0.0.300")
	wantOneLine(t, dupip(t, nil, "agent", "--config", path+".none"), path+".none", "no such file")
}
