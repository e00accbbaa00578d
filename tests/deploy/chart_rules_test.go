package deploy_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/yaml"

	"github.com/dupip/dupip/internal/testneeds"
	"github.com/dupip/dupip/tests/helm"
)

// renderText is what a version of Helm makes of the chart.
func renderText(t *testing.T, version helm.Version, values string) string {
	t.Helper()
	testneeds.Slow(t)
	seen()
	text, err := version.Run(t.Context(), values, "template", "dupip", chartDir, "--namespace", "dupip", "--kube-version", "1.30", "--values", "testdata/key.yaml", "--values", "-")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Without values of the user, the rules are those of the file, with its comments and with the commands of the release. An upgrade
// with --reuse-values from a chart that did not have these values renders the same.
func TestChartRulesUnchanged(t *testing.T) {
	file := "spec:\n  " + strings.ReplaceAll(strings.TrimSuffix(inRelease(readChartFile(t, alertsPath)), "\n"), "\n", "\n  ") + "\n"
	for name, version := range helmVersions {
		text := renderText(t, version, `{prometheusRule: {enabled: true}}`)
		if !strings.Contains(text, file) {
			t.Errorf("%s: the rules are not those of deploy/alerts.yaml to the byte:\n%s", name, text)
		}
		old := renderText(t, version, `{dashboard: null, commonLabels: null, metrics: {address: null}, prometheusRule: {enabled: true, alertLabels: null, overrides: null, thresholds: null}}`)
		equal(t, name+": without the values that are new", old, text)
	}
}

// Each alert can be changed; what is not changed stays.
func TestChartRulesChanged(t *testing.T) {
	overrides := make(map[string]any)
	for _, r := range alertRules(t) {
		if r.Alert != "" {
			overrides[r.Alert] = map[string]any{"for": "1d2h30m", "labels": map[string]string{"severity": "page", "team": "their own"}}
		}
	}
	overrides["DupipNoAgents"] = map[string]any{"enabled": false}
	overrides["DupipRuntimeUnreachable"] = map[string]any{"enabled": true}
	values, err := yaml.Marshal(map[string]any{"prometheusRule": map[string]any{
		"enabled": true, "alertLabels": map[string]string{"team": "net", "area": "ip"}, "overrides": overrides,
	}})
	if err != nil {
		t.Fatal(err)
	}
	var want *monitoringv1.PrometheusRuleSpec
	if err := strictly([]byte(inRelease(readChartFile(t, alertsPath))), &want); err != nil {
		t.Fatal(err)
	}
	wait := monitoringv1.Duration("1d2h30m")
	for g, group := range want.Groups {
		var rules []monitoringv1.Rule
		for _, r := range group.Rules {
			switch r.Alert {
			case "":
			case "DupipNoAgents":
				continue
			case "DupipRuntimeUnreachable":
				r.Labels["team"], r.Labels["area"] = "net", "ip"
			default:
				r.For, r.Labels = &wait, map[string]string{"severity": "page", "team": "their own", "area": "ip"}
			}
			rules = append(rules, r)
		}
		want.Groups[g].Rules = rules
	}
	for name, version := range helmVersions {
		o, err := decodeChart(renderText(t, version, string(values)))
		if err != nil {
			t.Fatal(err)
		}
		equal(t, name, o.rule.Spec, *want)
		promtool(t, "check", "rules", writeRules(t, o))
	}
}

// writeRules makes a rule file for Prometheus of the rules for its operator.
func writeRules(t *testing.T, o *chartObjects) string {
	t.Helper()
	data, err := yaml.Marshal(o.rule.Spec)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Prometheus fires at the changed thresholds: not below them, and not at the old ones.
func TestChartRulesFire(t *testing.T) {
	o, err := renderChart(t, "dupip", "dupip", `
prometheusRule:
  enabled: true
  alertLabels: {team: net}
  thresholds: {addresses: 3, rangeLeftPercent: 29}
  overrides:
    DupipAgentDown: {for: 1h, labels: {severity: critical}}
    DupipAddressUnreserved: {for: 5m}
    DupipNoAgents: {enabled: false}
`)
	if err != nil {
		t.Fatal(err)
	}
	// What people read says the same.
	for _, group := range o.rule.Spec.Groups {
		for _, r := range group.Rules {
			text := fmt.Sprint(r.Annotations)
			switch r.Alert {
			case "DupipRangeNearlyUsedUp":
				if !strings.Contains(text, "less than 29% left") || strings.Count(text, "< 0.29)") != 1 {
					t.Errorf("%s: %s", r.Alert, text)
				}
			case "DupipAddressesSuspected":
				if !strings.Contains(text, "more than 3 addresses") {
					t.Errorf("%s: %s", r.Alert, text)
				}
			}
		}
	}
	p := &play{scrapes: 280, rules: writeRules(t, o)}
	always := func(value string) func(int) string { return func(int) string { return value } }
	// Conflicts and suspicions in two networks: three, and four.
	for network, count := range map[string]int{"few": 3, "many": 4} {
		for n := range count {
			for _, state := range []string{"confirmed", "suspected"} {
				p.add("dupip_conflict_info", fmt.Sprintf(`instance="n:9951",id="%s%d",network="%s-%s",ip="10.0.0.%d",state=%q`, state, n, network, state, n, state), always("1"))
			}
		}
	}
	// An agent is away from the 20th scrape on.
	p.add("up", `job="dupip",instance="m:9951"`, func(s int) string { return at(s, 20, "1", 20, "0", "0") })
	p.add("dupip_build_info", `job="dupip",instance="m:9951"`, func(s int) string { return at(s, 20, "1", 20, stale, missing) })
	p.add("dupip_ipam_range_left_ratio", `cluster="less",instance="n:9951",cni_network="default"`, always("0.28"))
	p.add("dupip_ipam_range_left_ratio", `cluster="more",instance="n:9951",cni_network="default"`, always("0.3"))
	p.add("dupip_audit_findings", `instance="n:9951",kind="unreserved"`, always("1"))

	firing := func(after int, alert string, labels string, count int) expectation {
		e := expectation{expr: fmt.Sprintf(`count(ALERTS{alertstate="firing",team="net",alertname=%q,%s})`, alert, labels), after: after}
		if count > 0 {
			e.want = []map[string]any{{"labels": "{}", "value": count}}
		}
		return e
	}
	const minute = int(60e9 / scrape)
	p.check(t, "changed thresholds",
		firing(2, "DupipDuplicateAddress", `network="few-confirmed",severity="critical"`, 3),
		firing(2, "DupipDuplicateAddress", `network="many-confirmed"`, 0),
		firing(2, "DupipDuplicateAddresses", `network="many-confirmed",severity="critical"`, 1),
		firing(2, "DupipDuplicateAddresses", `network="few-confirmed"`, 0),
		firing(11*minute, "DupipAddressSuspected", `network="few-suspected"`, 3),
		firing(11*minute, "DupipAddressSuspected", `network="many-suspected"`, 0),
		firing(11*minute, "DupipAddressesSuspected", `network="many-suspected"`, 1),
		firing(11*minute, "DupipAddressesSuspected", `network="few-suspected"`, 0),
		// Its expression looks back on 15 minutes.
		firing(16*minute, "DupipRangeNearlyUsedUp", `cluster="less"`, 1),
		firing(60*minute, "DupipRangeNearlyUsedUp", `cluster="more"`, 0),
		// In addition to the minute that its expression looks back on.
		firing(5*minute, "DupipAddressUnreserved", `severity="critical"`, 0),
		firing(7*minute, "DupipAddressUnreserved", `severity="critical"`, 1),
		// It remembers agents for 30 minutes only.
		firing(20+59*minute, "DupipAgentDown", `severity="critical"`, 0),
		firing(20+61*minute, "DupipAgentDown", `severity="critical",instance="m:9951"`, 1),
		// There is no agent, and nobody asks.
		expectation{expr: `count_over_time(ALERTS{alertname="DupipNoAgents"}[70m])`, after: 279},
	)
}
