package deploy_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Prometheus takes all queries.
func TestDashboardPromtool(t *testing.T) {
	t.Parallel()
	var rules strings.Builder
	rules.WriteString("groups: [{name: dashboard, rules: [\n")
	for _, p := range dashboardPanels(t) {
		for _, q := range p.Targets {
			expr, err := json.Marshal(writtenOut(t, q.Expr)) // JSON is YAML
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&rules, "{record: panel_%d_%s, expr: %s},\n", p.ID, q.RefID, expr)
		}
	}
	rules.WriteString("]}]\n")
	path := filepath.Join(t.TempDir(), "queries.yaml")
	if err := os.WriteFile(path, []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("promtool", "check", "rules", path).CombinedOutput(); err != nil {
		t.Errorf("promtool check rules: %v (tests/install.sh test installs it)\n%s", err, out)
	}
}

// writtenOut is a query without variables, as Grafana sends it for all nodes.
func writtenOut(t *testing.T, expr string) string {
	t.Helper()
	expr = strings.NewReplacer("$cluster", ".*", "$node", ".*", "$__rate_interval", "2m").Replace(expr)
	if strings.Contains(expr, "$") {
		t.Errorf("%s: an unknown variable", expr)
	}
	return expr
}

// What the dashboard does not show, and why.
var notShown = map[string]string{
	"dupip_state_last_write_timestamp_seconds":   "written only when something has changed: its age means nothing",
	"dupip_config_last_reload_timestamp_seconds": "dupip status shows it",
	"dupip_gossip_reporters":                     "most clusters have none",
	"dupip_host_addresses_omitted":               "hardly a node has so many addresses; dupip status and dupip doctor say it",
	"dupip_conflict_holder_info":                 "off by default, and for rules; the table of conflicts has the pods",
	"dupip_left_out_total":                       "no observation; dupip status has it",
	"dupip_overdue_total":                        "0, unless the detector has a fault",
	"dupip_resync_found_total":                   "0, unless an event was missed; what it was about is found all the same",
	"dupip_notifications_total":                  "for hosts without Prometheus; dupip status has it",
	"dupip_drills":                               "a drill shows itself what it does",
}

// The queries name only metrics that an agent exports, and leave none out by accident.
func TestDashboardNamesMetrics(t *testing.T) {
	t.Parallel()
	exported, known := exportedMetrics(t), metricNames(t)
	shown := make(map[string]bool)
	for _, p := range dashboardPanels(t) {
		for _, q := range p.Targets {
			for _, name := range metricsIn(q.Expr) {
				if exported[name] == nil {
					t.Errorf("%s: %s is no metric of the agent", p.Title, name)
				}
				shown[strings.TrimSuffix(name, "_bucket")] = true
			}
		}
	}
	for _, name := range known {
		if shown[name] == (notShown[name] != "") {
			t.Errorf("%s: shown is %v, and the reason not to is %q", name, shown[name], notShown[name])
		}
	}
	for name := range maps.Keys(notShown) {
		if !slices.Contains(known, name) {
			t.Errorf("%s is no metric of the agent", name)
		}
	}
}

var (
	selectors  = regexp.MustCompile(`(\w+)\{([^}]*)\}`)
	matchers   = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"`)
	labelLists = regexp.MustCompile(`\b(?:by|on|group_left)\s*\(([^)]*)\)`)
	inLegend   = regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)
)

// The labels in queries and in legends are those of the metrics, and so are their values.
func TestDashboardNamesLabels(t *testing.T) {
	t.Parallel()
	exported := exportedMetrics(t)
	for _, p := range dashboardPanels(t) {
		for _, q := range p.Targets {
			for _, s := range selectors.FindAllStringSubmatch(q.Expr, -1) {
				for _, m := range matchers.FindAllStringSubmatch(s[2], -1) {
					if !exported[s[1]].has(m[1]) {
						t.Errorf("%s: %s has no label %s", p.Title, s[1], m[1])
					}
					for value := range strings.SplitSeq(m[2], "|") {
						if !exported[s[1]].mayBe(m[1], value) {
							t.Errorf("%s: %s has no %s=%q", p.Title, s[1], m[1], value)
						}
					}
				}
			}
			var named []string
			for _, list := range labelLists.FindAllStringSubmatch(q.Expr, -1) {
				named = append(named, strings.FieldsFunc(list[1], func(r rune) bool { return r == ',' || r == ' ' })...)
			}
			for _, m := range inLegend.FindAllStringSubmatch(q.LegendFormat, -1) {
				named = append(named, m[1])
			}
			for _, label := range named {
				if !slices.ContainsFunc(metricsIn(q.Expr), func(name string) bool { return exported[name].has(label) }) {
					t.Errorf("%s: no metric of it has a label %s", p.Title, label)
				}
			}
		}
	}
}

// chosen are the agents of the clusters and nodes that are chosen above the panels.
const chosen = `dupip_node_info{cluster=~"$cluster", node=~"$node"}`

// Every query is limited to the chosen agents. The job distinguishes an agent from another
// program with the same instance, as a relabelling to the node's name makes it.
func TestDashboardQueriesAreLimited(t *testing.T) {
	t.Parallel()
	const unlimited = "Agents down" // an agent that does not answer has no dupip_node_info
	for _, p := range dashboardPanels(t) {
		for _, q := range p.Targets {
			if !strings.Contains(q.Expr, chosen) && p.Title != unlimited {
				t.Errorf("%s: %s is not limited to %s", p.Title, q.Expr, chosen)
			}
			if strings.Contains(q.Expr, "instance") && strings.Count(q.Expr, "job") < strings.Count(q.Expr, "instance") {
				t.Errorf("%s: %s names the instance without the job", p.Title, q.Expr)
			}
		}
	}
}

var (
	// Strings, selectors, lists of labels and durations.
	notMetrics = regexp.MustCompile(`"[^"]*"|\{[^}]*\}|\b(?:by|on|group_left)\s*\([^)]*\)|\[[^\]]*\]|\boffset\s+\w+`)
	words      = regexp.MustCompile(`\b([a-zA-Z_:][a-zA-Z0-9_:]*)(\s*\()?`)
	operators  = []string{"and", "or", "unless", "bool"}
)

// metricsIn are the names of metrics in a query: the identifiers that are neither functions nor
// operators.
func metricsIn(expr string) (names []string) {
	for _, m := range words.FindAllStringSubmatch(notMetrics.ReplaceAllString(expr, " "), -1) {
		if m[2] == "" && !slices.Contains(operators, m[1]) {
			names = append(names, m[1])
		}
	}
	return names
}

func TestMetricsIn(t *testing.T) {
	t.Parallel()
	got := metricsIn(`max by (a, b) (rate(c_total{d=~"e and f"}[5m]) and on (g) h) > bool 1 or label_replace(i offset 1h, "j", "$1", "k", "") * on (l) group_left (m) n`)
	if want := []string{"c_total", "h", "i", "n"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// The dashboard and the alerts call the same thing a loss.
func TestDashboardAgreesWithAlerts(t *testing.T) {
	t.Parallel()
	ordinary := regexp.MustCompile(`dupip_dropped_total\{(reason!~"[^"]*")`)
	var expected []string
	for _, r := range alertRules(t) {
		for _, m := range ordinary.FindAllStringSubmatch(r.Expr, -1) {
			expected = append(expected, m[1])
		}
	}
	found := 0
	for _, p := range dashboardPanels(t) {
		for _, q := range p.Targets {
			for _, m := range ordinary.FindAllStringSubmatch(q.Expr, -1) {
				found++
				if !slices.Contains(expected, m[1]) {
					t.Errorf("%s: %s, the alerts have %q", p.Title, m[1], slices.Compact(expected))
				}
			}
		}
	}
	if found == 0 {
		t.Error("no panel shows what is lost")
	}
}
