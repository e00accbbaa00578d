package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// brief is a finding by the names of its pods.
func brief(f lab.Finding) string {
	text := f.Kind + " " + f.IP.String()
	if f.Pod != nil {
		text += " " + f.Pod.Name
	}
	if f.ReservedPod != nil {
		text += ", reserved for " + f.ReservedPod.Name
	}
	return text
}

// findings waits until the audit has just these.
func (b *booked) findings(want ...string) (all []lab.Finding) {
	b.Helper()
	b.Eventually(fmt.Sprintf("findings %q", want), func() error {
		out, err := b.agent.CLI(b.Context(), "audit", "-o", "json")
		if err != nil {
			return err
		}
		var doc struct{ Findings []lab.Finding }
		if err := json.Unmarshal([]byte(out), &doc); err != nil {
			return err
		}
		var got []string
		for _, f := range doc.Findings {
			got = append(got, brief(f))
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("there are %q", got)
		}
		all = doc.Findings
		return nil
	})
	return all
}

// reservation is the file of an address in the store.
func (b *booked) reservation(ip netip.Addr) string {
	b.Helper()
	all, err := filepath.Glob(filepath.Join(b.Store(), "*", ip.String()))
	b.Do(err)
	if len(all) != 1 {
		b.Fatal("reservations of ", ip, ": ", all)
	}
	return all[0]
}

// runs runs a command as somebody who copied it from the output.
func (b *booked) runs(command string) {
	b.Helper()
	out, err := exec.Command("bash", "-c", command).CombinedOutput()
	if err != nil {
		b.Fatal(fmt.Errorf("run %s: %w: %s", command, err, out))
	}
}

// command is what the audit prints to repair the first finding of a kind.
func (b *booked) command() string {
	b.Helper()
	out, err := b.agent.CLI(b.Context(), "audit")
	b.Do(err)
	_, commands, ok := strings.Cut(out, ":\n    ") // "on node n1:"
	if !ok {
		b.Fatal("no command in ", out)
	}
	command, _, _ := strings.Cut(commands, "\n")
	return command
}

// TestAudit: what the wire has and the store has not, and the reverse, is found, and the commands that are printed repair it.
func TestAudit(t *testing.T) {
	t.Parallel()
	b := newBooked(t, "10.96.0.0/24", "--unheld-after", "2s")
	web, db := b.run("web"), b.run("db")
	b.says("audit", "No finding: books and wire agree.", "2 addresses reserved of 10.96.0.1-10.96.0.254, 99% left.")
	lost := b.reservation(web.IPs[0])
	content, err := os.ReadFile(lost)
	b.Do(err)

	removed := time.Now()
	inTime, cancel := lab.WithTimeout(b.Context(), 5*time.Second)
	defer cancel()
	b.Do(os.Remove(lost))
	found := b.findings("unreserved " + web.IPs[0].String() + " web")[0]
	t.Logf("found %v after the reservation was removed, as of %v", time.Since(removed), found.Since.Sub(removed))
	if inTime.Err() != nil {
		t.Errorf("found after %v: %v", time.Since(removed), context.Cause(inTime))
	}
	b.says("audit", "shop/web has "+web.IPs[0].String()+", which host-local has not reserved")
	b.says("explain "+web.IPs[0].String(), "not reserved, although it gives out 10.96.0.1-10.96.0.254")
	if _, err := b.agent.CLI(t.Context(), "audit", "--exit-code"); err == nil {
		t.Error("--exit-code has no effect")
	}
	b.runs(b.command())
	if again, err := os.ReadFile(lost); err != nil || string(again) != string(content) {
		t.Errorf("the printed command reserved %q, host-local had %q, %v", again, content, err)
	}
	b.findings()

	b.Do(os.WriteFile(lost, []byte(db.ID+"\r\neth0"), 0o600))
	b.findings("mismatched " + web.IPs[0].String() + " web, reserved for db")
	b.Do(os.WriteFile(lost, content, 0o600))
	b.findings()

	leak := filepath.Join(filepath.Dir(lost), "10.96.0.77")
	b.Do(os.WriteFile(leak, []byte(strings.Repeat("0123456789abcdef", 4)+"\r\neth0"), 0o600))
	b.findings("unheld 10.96.0.77")
	b.runs(b.command())
	b.findings()
	if _, err := os.Stat(leak); !os.IsNotExist(err) {
		t.Error("the printed command did not free the address: ", err)
	}

	// A pod ends as it should, and another one comes.
	b.Do(b.RemovePod(t.Context(), web))
	next := b.run("next")
	b.findings()

	// The whole store is gone. The printed command works without its folder.
	b.Do(b.WipeStore())
	b.findings("unreserved "+db.IPs[0].String()+" db", "unreserved "+next.IPs[0].String()+" next")
	b.runs(b.command())
	b.findings("unreserved " + next.IPs[0].String() + " next")
}
