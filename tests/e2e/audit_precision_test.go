package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dupip/dupip/tests/cri"
	"github.com/dupip/dupip/tests/lab"
)

const (
	// slowPlugin is the last of the chain: in an ADD the pod has its address, and the runtime does not know the sandbox yet;
	// in a DEL the sandbox has stopped, and everything is still there.
	slowPlugin = `[ -e %s ] && case "$CNI_COMMAND" in ADD|DEL) sleep 3 ;; esac
exec "$(dirname "$0")/tuning"
`
	// slowHostLocal: in an ADD the address is reserved, and the pod has no interface yet; in a DEL the address is free, and
	// the pod still has it.
	slowHostLocal = `[ -e %s ] || exec %[2]s/host-local
result=$(%[2]s/host-local)
code=$?
case "$CNI_COMMAND" in ADD) sleep 1 ;; DEL) sleep 3 ;; esac
printf %%s "$result"
exit $code
`
	// unheldAfter is the agent's. A slow machine needs seconds from the reservation to the interface, beside the one of slowHostLocal.
	unheldAfter = 5 * time.Second
	// lawfulFor is how long a lawful state lasts at least: longer than the agent needs for any finding.
	lawfulFor = unheldAfter + 3*time.Second
)

// TestAuditPrecision: while pods are made and removed, slowly and many at once, and in all states in which the store and the
// wire lawfully differ, the audit finds nothing.
func TestAuditPrecision(t *testing.T) {
	t.Parallel()
	plugins, err := lab.PluginDir()
	if err != nil {
		t.Fatal(err)
	}
	slow := filepath.Join(t.TempDir(), "slow")
	b := newBookedBy(t, cri.Options{
		Plugins: []map[string]any{{"type": "ptp", "ipam": cri.HostLocal("10.95.0.0/24")}, {"type": "slow"}},
		Scripts: map[string]string{
			"slow": fmt.Sprintf(slowPlugin, slow), "host-local": fmt.Sprintf(slowHostLocal, slow, plugins),
		},
	}, "--unheld-after", unheldAfter.String())
	audits := b.WatchAudit(b.agent.Client)
	// quiet fails the test if there has been a finding while play ran, and for some seconds after it.
	quiet := func(state string, play func()) {
		t.Helper()
		began, before := time.Now(), len(audits.Seen())
		play()
		time.Sleep(max(lawfulFor-time.Since(began), unheldAfter+500*time.Millisecond))
		b.Eventually(state, func() error {
			if read := time.Since(audits.Read()); read > 4*time.Second {
				return fmt.Errorf("the books were last read %v ago", read)
			}
			return nil
		})
		for _, f := range audits.Seen()[before:] {
			t.Errorf("%s: false finding %v, from %v to %v after the beginning", state, f.Finding, f.First.Sub(began), f.Last.Sub(began))
		}
		t.Logf("%s: %d findings in %.1f s", state, len(audits.Seen())-before, time.Since(began).Seconds())
	}

	web := b.run("web")
	quiet("many ADD and DEL under way", func() {
		b.Do(os.WriteFile(slow, nil, 0o600))
		t.Logf("%d pods made and removed", b.churn(12, 16*time.Second))
		b.Do(os.Remove(slow))
	})
	quiet("many pods made and removed at full speed", func() {
		t.Logf("%d pods made and removed", b.churn(4, 10*time.Second))
	})
	quiet("sandbox created again", func() {
		o := web.PodOptions
		b.Do(b.KillPod(t.Context(), web))
		time.Sleep(lawfulFor) // kubelet notices it late: the address is reserved for a sandbox that is not ready
		b.Do(b.StopPod(t.Context(), web))
		o.Attempt++
		next, err := b.RunPod(t.Context(), o)
		b.Do(err)
		time.Sleep(lawfulFor) // and removes it late
		b.Do(b.RemovePod(t.Context(), web))
		web = next
	})
	quiet("host network and static pod", func() {
		_, err := b.RunPod(t.Context(), cri.PodOptions{Namespace: "kube-system", Name: "proxy", UID: "uid-proxy", HostNetwork: true})
		b.Do(err)
		_, err = b.RunPod(t.Context(), cri.PodOptions{
			Namespace: "kube-system", Name: "scheduler-" + b.Runtime.Node.ShortName(), UID: "0123456789abcdef0123456789abcdef",
			Annotations: map[string]string{"kubernetes.io/config.source": "file", "kubernetes.io/config.seen": "2026-01-01T00:00:00Z"},
		})
		b.Do(err)
	})
	quiet("a pod of another runtime", func() {
		ns, err := b.Runtime.Node.AddSandbox("nerdctl")
		b.Do(err)
		id := strings.Repeat("0123456789abcdef", 4)
		config := firstPlugin(b.T, filepath.Join(b.ConfDir(), "lab.conflist"))
		b.plugin("ADD", config, id, ns.Path(), "eth0")
		time.Sleep(lawfulFor)
	})
	quiet("a secondary network with the same range", func() {
		store := t.TempDir()
		conflist := filepath.Join(b.ConfDir(), "zz-second.conflist")
		b.Do(os.MkdirAll(filepath.Join(store, "second"), 0o755),
			os.WriteFile(filepath.Join(store, "second", "last_reserved_ip.0"), []byte("10.95.0.199"), 0o600),
			os.WriteFile(conflist, fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":"second","plugins":[{"type":"bridge","bridge":"second0",
				"ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"10.95.0.0/16","rangeEnd":"10.95.0.250"}]]}}]}`, store), 0o600))
		config := firstPlugin(b.T, conflist)
		b.plugin("ADD", config, web.ID, web.Netns, "net1")
		time.Sleep(lawfulFor)
		b.says("status", "network second, 1 address reserved of 10.95.0.1-10.95.0.250")
		b.plugin("DEL", config, web.ID, web.Netns, "net1")
	})
	away := b.Store() + ".away"
	quiet("the store is away for half a second", func() {
		for range 3 {
			b.Do(os.Rename(b.Store(), away))
			time.Sleep(500 * time.Millisecond)
			b.Do(os.Rename(away, b.Store()))
			time.Sleep(2300 * time.Millisecond) // not every second, because then each reading could miss the store
		}
	})

	// A store that is restored late is a finding as long as it is away, and only that.
	b.Do(os.Rename(b.Store(), away))
	removed := time.Now()
	before := len(audits.Seen())
	b.Eventually("findings without the store", func() error {
		if n := len(audits.Seen()) - before; n != 2 {
			return fmt.Errorf("%d findings, want the two pods'", n)
		}
		return nil
	})
	t.Logf("found %v after the store was moved away: %v", time.Since(removed), audits.Seen())
	time.Sleep(time.Until(removed.Add(10 * time.Second)))
	b.Do(os.Rename(away, b.Store()))
	restored := time.Now()
	b.findings()
	t.Logf("ended %v after the store was restored", time.Since(restored))
	for _, f := range audits.Seen() {
		if f.Kind != "unreserved" || f.Pod == nil {
			t.Errorf("false finding without the store: %v", f.Finding)
		}
	}
	quiet("after the store was restored", func() {})
}

// churn makes and removes pods, so many at a time, and begins none later than after this time. It returns how many.
func (b *booked) churn(atOnce int, duration time.Duration) (made int) {
	b.Helper()
	end := time.Now().Add(duration)
	var group sync.WaitGroup
	counts, errs := make([]int, atOnce), make([]error, atOnce)
	for i := range atOnce {
		group.Go(func() {
			time.Sleep(time.Duration(i) * 300 * time.Millisecond) // so that they are in different steps
			for errs[i] == nil && time.Now().Before(end) {
				name := fmt.Sprintf("churn-%d-%d-%d", atOnce, i, counts[i])
				p, err := b.RunPod(b.Context(), cri.PodOptions{Namespace: "shop", Name: name, UID: "uid-" + name})
				if err == nil {
					time.Sleep(time.Second)
					err = b.RemovePod(b.Context(), p)
				}
				counts[i]++
				errs[i] = err
			}
		})
	}
	group.Wait()
	b.Do(errs...)
	for _, n := range counts {
		made += n
	}
	return made
}

// firstPlugin is the configuration of the first plugin of a list.
func firstPlugin(t *lab.T, conflist string) map[string]any {
	t.Helper()
	data, err := os.ReadFile(conflist)
	t.Do(err)
	var list struct {
		Name, CNIVersion string
		Plugins          []map[string]any
	}
	t.Do(json.Unmarshal(data, &list))
	config := list.Plugins[0]
	config["name"], config["cniVersion"] = list.Name, list.CNIVersion
	return config
}

// plugin calls a plugin by hand, as another runtime does.
func (b *booked) plugin(command string, config map[string]any, id, netns, device string) {
	b.Helper()
	plugins, err := lab.PluginDir()
	b.Do(err)
	input, err := json.Marshal(config)
	b.Do(err)
	var out bytes.Buffer
	cmd := exec.Command(filepath.Join(plugins, config["type"].(string)))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &out, &out
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+command, "CNI_CONTAINERID="+id, "CNI_NETNS="+netns, "CNI_IFNAME="+device, "CNI_PATH="+plugins)
	b.Do(b.Runtime.Node.Start(cmd))
	if err := cmd.Wait(); err != nil {
		b.Fatal(fmt.Errorf("%s: %w: %s", command, err, out.String()))
	}
}
