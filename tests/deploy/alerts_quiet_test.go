package deploy_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"
)

// scrape is the interval between two scrapes of these plays, if they have no other, and evaluation that between two evaluations of rules.
const (
	scrape     = 15 * time.Second
	evaluation = 15 * time.Second
)

// Samples of promtool's that are no numbers.
const (
	missing = "_"
	stale   = "stale"
)

// play is a cluster over time, as Prometheus sees it.
type play struct {
	rules   string        // a file; empty for those that are deployed
	also    []string      // more files
	every   time.Duration // is scraped; zero for [scrape]
	scrapes int
	series  []map[string]string
}

// add adds a series; value is what the scrape with that number gives.
func (p *play) add(metric, labels string, value func(scrape int) string) {
	var values []string
	for n := range p.scrapes {
		values = append(values, value(n))
	}
	p.series = append(p.series, map[string]string{"series": metric + "{" + labels + "}", "values": strings.Join(values, " ")})
}

// expectation is what an expression gives after this many scrapes, or at a time: nothing, or numbers.
type expectation struct {
	expr  string
	after int
	at    time.Duration
	want  []map[string]any
}

func (p *play) silent() expectation {
	return expectation{expr: fmt.Sprintf(`count_over_time(ALERTS{alertstate="firing"}[%v])`, p.length(p.scrapes)), after: p.scrapes}
}

func (p *play) length(scrapes int) time.Duration {
	return time.Duration(scrapes) * cmp.Or(p.every, scrape)
}

// check has promtool play it.
func (p *play) check(t *testing.T, name string, all ...expectation) {
	t.Helper()
	rules, err := filepath.Abs(or(p.rules, alertsPath))
	if err != nil {
		t.Fatal(err)
	}
	var expected []map[string]any
	for _, e := range all {
		expected = append(expected, map[string]any{"expr": e.expr, "eval_time": cmp.Or(e.at, p.length(e.after)).String(), "exp_samples": e.want})
	}
	data, err := yaml.Marshal(map[string]any{
		"rule_files": append([]string{rules}, p.also...), "evaluation_interval": evaluation.String(),
		"tests": []any{map[string]any{
			"name": name, "interval": p.length(1).String(), "input_series": p.series, "promql_expr_test": expected,
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "play.yaml")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "test", "rules", path)
}

// ups are metrics of an agent that are this while it begins, and then that.
var ups = []struct{ metric, labels, begins, then string }{
	{"dupip_build_info", "", "1", "1"},
	{"dupip_interfaces", `state="failed"`, "1", "0"},
	{"dupip_interfaces", `state="shadowed"`, "2", "0"},
	{"dupip_gossip_leases_unacked", "", "30", "0"},
	{"dupip_gossip_problems", "", "1", "0"},
	{"dupip_pods_runtime_connected", "", "0", "1"},
	{"dupip_state_last_write_success", "", "0", "1"},
	{"dupip_config_last_reload_success", "", "0", "1"},
	{"dupip_dropped_total", `reason="early"`, "12", "12"},
	{"dupip_conflicts", `state="confirmed",scope="same-node"`, "0", "0"},
}

// Agents are replaced one by one, or some at a time: each is down for half a minute, then has another pod name, starts
// with interfaces that wait or fail, sees itself alone, and has no leases with keepers. Scrapes begin
// before it listens. At every moment one agent is in this state, or some are.
func TestNoAlertsOfARollingUpdate(t *testing.T) {
	t.Parallel()
	for _, together := range []int{1, 5} { // 5 of 12 are the chart's maxUnavailable
		t.Run(fmt.Sprintf("%d at a time", together), func(t *testing.T) {
			t.Parallel()
			playRollingUpdate(t, together)
		})
	}
}

func playRollingUpdate(t *testing.T, together int) {
	t.Helper()
	const (
		nodes  = 12
		first  = 8 // scrapes before the first agent ends
		pace   = 6 // and between two
		away   = 3 // from its last scrape to the first of the next agent
		begins = 4
	)
	p := &play{scrapes: 200}
	for n := range nodes {
		ends := first + n/together*together*pace
		starts := ends - 1 + away
		pod := func(incarnation string) string {
			return fmt.Sprintf(`instance="n%d:9951",job="dupip",pod="%s-%d"`, n, incarnation, n)
		}
		// The old pod is a target for a moment more, and the new one before it listens.
		p.add("up", pod("old"), func(s int) string { return at(s, ends, "1", ends+1, "0", stale) })
		p.add("up", pod("new"), func(s int) string { return at(s, ends, missing, starts, "0", "1") })
		one := func(metric, labels, begin, then string) {
			if labels != "" {
				labels = "," + labels
			}
			p.add(metric, pod("old")+labels, func(s int) string { return at(s, ends, then, ends, then, stale) })
			p.add(metric, pod("new")+labels, func(s int) string { return at(s, starts, missing, starts+begins, begin, then) })
		}
		for _, u := range ups {
			one(u.metric, u.labels, u.begins, u.then)
		}
		one("dupip_gossip_members", `state="alive"`, "1", fmt.Sprint(nodes))
	}
	p.check(t, "rolling update", p.silent(),
		// The play is not empty: at the same time a rule without that care would fire.
		expectation{
			expr:  fmt.Sprintf(`min_over_time((count(dupip_gossip_members{state="alive"} < %d) > bool 0)[10m:%v])`, nodes, scrape),
			after: 56, want: []map[string]any{{"labels": "{}", "value": 1}},
		})
}

// at is before until the scrape with that number, then between until another, then after.
func at(s, first int, before string, second int, between, after string) string {
	switch {
	case s < first:
		return before
	case s < second:
		return between
	}
	return after
}

// Four nodes become twenty, one every 15 s, then four again. A new agent is alone for a moment,
// and the others know of it a scrape later. There is always one that is new.
func TestNoAlertsOfAClusterThatGrowsAndShrinks(t *testing.T) {
	t.Parallel()
	const (
		stay   = 4
		come   = 16
		grows  = 70
		remain = 50 // scrapes from when a node comes until it goes
	)
	p := &play{scrapes: 200}
	// alive is how many nodes the agents of old know.
	alive := func(s int) int {
		count := stay
		for n := range come {
			if s > grows+n && s <= grows+n+remain {
				count++
			}
		}
		return count
	}
	for n := range stay + come {
		comes, goes := 0, p.scrapes
		if n >= stay {
			comes = grows + n - stay
			goes = comes + remain
		}
		instance := fmt.Sprintf(`instance="n%d:9951"`, n)
		one := func(metric, labels, first string, then func(int) string) {
			if labels != "" {
				labels = "," + labels
			}
			p.add(metric, instance+labels, func(s int) string {
				switch {
				case s < comes:
					return missing
				case s == comes && n >= stay:
					return first
				case s < goes:
					return then(s)
				case s == goes:
					return stale
				}
				return missing
			})
		}
		for _, u := range ups {
			one(u.metric, u.labels, u.begins, func(int) string { return u.then })
		}
		one("dupip_gossip_members", `state="alive"`, "1", func(s int) string { return fmt.Sprint(alive(s)) })
	}
	p.check(t, "a cluster that grows and shrinks", p.silent(),
		expectation{expr: `max(dupip_gossip_members)`, after: grows + come + 5, want: []map[string]any{{"labels": "{}", "value": stay + come}}})
}
