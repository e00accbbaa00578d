package deploy_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

const anyOf = `alertname=~"DupipDuplicateAddress|DupipDuplicateAddresses|DupipAddressSuspected|DupipAddressesSuspected"`

// turns are conflicts whose series change while the agent runs, and what the one alert of an address makes of it.
var turns = map[string]func(d *departure){
	// Somebody removes a holder. Then the address is used again: that is suspected, as ordinary reuse is, and fades.
	"the end of a conflict, and a suspicion after it": func(d *departure) {
		d.agent(a, span{0, 21})
		d.occurrence(a, "10.0.0.7-1", "", "confirmed", span{0, 5})
		d.occurrence(a, "10.0.0.7-2", "", "suspected", span{7, 8})
		d.always(open, span{0, 5})
		d.never(anyOf, span{5, 20})
	},
	// A pod's name arrives late, and later the pod of the other holder has another name.
	"a rename": func(d *departure) {
		d.agent(a, span{0, 21})
		d.occurrence(a, "10.0.0.7-1", `,first_pod="shop/a"`, "confirmed", span{0, 3})
		d.occurrence(a, "10.0.0.7-1", `,first_pod="shop/a",second_pod="shop/b"`, "confirmed", span{3, 6})
		d.occurrence(a, "10.0.0.7-1", `,first_pod="shop/c",second_pod="shop/b"`, "confirmed", span{6, 9})
		d.always(open, span{0, 9})
		d.always(anyOf, span{0, 9})
		d.never(anyOf, span{9, 20})
	},
	// The next agent has the conflict from the state of the last one, and asks the runtime again.
	"a restart after which the names arrive late": func(d *departure) {
		const both = `,first_pod="shop/a",second_pod="shop/b"`
		d.agent(a+`,pod="old"`, span{0, 4})
		d.agent(a+`,pod="new"`, span{5, 21})
		d.occurrence(a+`,pod="old"`, "10.0.0.7-2", both, "confirmed", span{0, 4})
		d.occurrence(a+`,pod="new"`, "10.0.0.7-2", "", "suspected", span{5, 6})
		d.occurrence(a+`,pod="new"`, "10.0.0.7-2", "", "confirmed", span{6, 7})
		d.occurrence(a+`,pod="new"`, "10.0.0.7-2", both, "confirmed", span{7, 12})
		d.always(open, span{0, 12})
		d.always(anyOf, span{0, 12})
		d.never(anyOf, span{12, 20})
	},
	// The ids have 1 and 2 by turns. From the second conflict on each suspicion has the id of a conflict that was confirmed minutes
	// ago: so the alert fires all the time.
	"a churning pair": func(d *departure) {
		d.agent(a, span{0, 21})
		d.occurrence(a, "10.0.0.7-1", "", "confirmed", span{0, 2}, span{6, 7}, span{10, 11})
		d.occurrence(a, "10.0.0.7-2", "", "suspected", span{2, 4}, span{7, 8})
		d.occurrence(a, "10.0.0.7-2", "", "confirmed", span{4, 5}, span{8, 9})
		d.occurrence(a, "10.0.0.7-1", "", "suspected", span{5, 6}, span{9, 10})
		d.always(open, span{0, 2})
		d.never(anyOf, span{2, 3})
		d.always(open, span{4, 11})
		d.always(anyOf, span{4, 11})
		d.never(anyOf, span{11, 20})
	},
	// The node's pods end while it is drained, the conflict with them; the other node's agent sees that, too. A minute later the
	// agent ends.
	"a node that is drained during the alert": func(d *departure) {
		d.agent(a, span{0, 6})
		d.agent(b, span{0, 21})
		d.conflict(a, "10.0.0.7", "confirmed", span{0, 5})
		d.conflict(b, "10.0.0.7", "confirmed", span{0, 5})
		d.always(open, span{0, 5})
		d.never(anyOf, span{5, 20})
	},
	// Its machine is switched off. The other node's agent sees the end, but the last that this one exported counts.
	"an agent's death": func(d *departure) {
		d.agent(a, span{0, 5})
		d.agent(b, span{0, 21})
		d.conflict(a, "10.0.0.7", "confirmed", span{0, 5})
		d.conflict(b, "10.0.0.7", "confirmed", span{0, 5})
		d.always(open, span{0, 10})
		d.never(anyOf, span{10, 20})
	},
	// A finding becomes a conflict, the agent restarts during that, and the conflict ends: always one alert, never two.
	"a finding, and its conflict": func(d *departure) {
		const finding = `alertname="DupipAddressUnreserved"`
		d.agent(a, span{0, 4}, span{5, 21})
		of := func(kind, value string, spans ...span) { // a series has one value in these plays, and each is added once
			d.during("dupip_audit_findings", fmt.Sprintf(`%s,kind=%q,pod="with-%s"`, a, kind, value), value, spans...)
		}
		of("mismatched", "0", span{0, 21})
		of("unreserved", "1", span{0, 2}, span{10, 15})
		of("unreserved", "0", span{2, 4}, span{5, 10}, span{15, 21})
		of("in_conflict", "1", span{2, 4}, span{5, 10})
		of("in_conflict", "0", span{0, 2}, span{10, 21})
		d.conflict(a, "10.0.0.7", "confirmed", span{2, 4}, span{6, 10})
		d.conflict(a, "10.0.0.7", "suspected", span{5, 6})
		d.always(open, span{2, 10})
		d.never(finding, span{2, 10})
		d.never(anyOf, span{10, 20})
		d.always(finding, span{12, 15})
	},
}

// The runbook's rule has one alert for each namespace with a holder, as long as the conflict, also while the agent restarts.
func TestAlertsOfTeams(t *testing.T) {
	t.Parallel()
	file := regexp.MustCompile("(?s)```yaml\n(groups:.*?)```").FindStringSubmatch(readChartFile(t, runbookPath))
	if file == nil {
		t.Fatal("deploy/RUNBOOK.md has no rule for teams")
	}
	path := filepath.Join(t.TempDir(), "teams.yaml")
	if err := os.WriteFile(path, []byte(file[1]), 0o600); err != nil {
		t.Fatal(err)
	}
	d := &departure{play: &play{every: grid, scrapes: int(minutes(21) / grid), also: []string{path}}, cluster: "east", every: scrape}
	d.agent(a, span{0, 4}, span{5, 21})
	d.conflict(a, "10.0.0.7", "confirmed", span{0, 4}, span{6, 12})
	d.conflict(a, "10.0.0.7", "suspected", span{5, 6})
	for _, namespace := range []string{"shop", "bank"} {
		d.during("dupip_conflict_holder_info", fmt.Sprintf(`%s,network="default",ip="10.0.0.7",holder_namespace=%q,holder_pod="web"`, a, namespace), "1", span{0, 4}, span{6, 12})
		alert := fmt.Sprintf(`alertname="DuplicateAddressOfTeam",holder_namespace=%q`, namespace)
		d.always(alert, span{0, 12})
		d.never(alert, span{12, 20})
	}
	d.check(t, "teams", d.expected...)
}

// One alert for each address, without a gap, however often Prometheus scrapes.
func TestAlertsOfConflictsThatChange(t *testing.T) {
	t.Parallel()
	playDepartures(t, turns)
}
