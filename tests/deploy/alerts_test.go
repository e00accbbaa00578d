package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/dupip/dupip/internal/testneeds"
)

const (
	alertsPath  = "../../deploy/alerts.yaml"
	casesPaths  = "../../deploy/alerts_test/*.yaml"
	runbookPath = "../../deploy/RUNBOOK.md"
	runbookURL  = "https://github.com/dupip/dupip/blob/main/deploy/RUNBOOK.md#"
)

// alertRule is a rule of Prometheus, as it is in its file.
type alertRule struct {
	Record, Alert, Expr string
	For                 string
	Labels, Annotations map[string]string
	// interval is how often its group is evaluated, zero for Prometheus' own.
	interval time.Duration
}

// alertRules are those that are deployed.
func alertRules(t *testing.T) (rules []alertRule) {
	t.Helper()
	var file struct {
		Groups []struct {
			Name, Interval string
			Rules          []alertRule
		}
	}
	readYAML(t, alertsPath, &file)
	for _, g := range file.Groups {
		var interval time.Duration
		if g.Interval != "" {
			var err error
			if interval, err = time.ParseDuration(g.Interval); err != nil {
				t.Fatal(err)
			}
		}
		for _, r := range g.Rules {
			r.interval = interval
			rules = append(rules, r)
		}
	}
	return rules
}

func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(data, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// Prometheus takes the rules, and they alarm when they should and only then.
func TestAlertsPromtool(t *testing.T) {
	t.Parallel()
	promtool(t, "check", "rules", alertsPath)
	for _, path := range casePaths(t) {
		promtool(t, "test", "rules", path)
	}
}

// promtool fails the test unless Prometheus' tool is content.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	testneeds.Program(t, "promtool", "prometheus")
	// Another process reads them: go test would use a result that it has of other ones.
	for _, path := range []string{alertsPath, args[len(args)-1]} {
		readChartFile(t, path)
	}
	out, err := exec.CommandContext(t.Context(), "promtool", args...).CombinedOutput()
	if err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		return
	}
	t.Logf("promtool %s\n%s", strings.Join(args, " "), out)
}

// casePaths are the files with cases for the alerts.
func casePaths(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(casesPaths)
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: no files (%v)", casesPaths, err)
	}
	return paths
}

// Each alert has a case with its full text, and what a person needs.
func TestAlertsComplete(t *testing.T) {
	t.Parallel()
	fires := make(map[string]bool)
	for _, path := range casePaths(t) {
		var cases struct {
			Tests []struct {
				AlertRuleTest []struct {
					Alertname string
					ExpAlerts []any `yaml:"exp_alerts"`
				} `yaml:"alert_rule_test"`
			}
		}
		readYAML(t, path, &cases)
		for _, c := range cases.Tests {
			for _, a := range c.AlertRuleTest {
				fires[a.Alertname] = fires[a.Alertname] || len(a.ExpAlerts) > 0
			}
		}
	}
	sections := runbookSections(t)
	for _, r := range alertRules(t) {
		if r.Alert == "" {
			continue
		}
		if !fires[r.Alert] {
			t.Errorf("%s: no case in deploy/alerts_test has it fire", r.Alert)
		}
		if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) {
			t.Errorf("%s: its severity is %q, want critical, warning or info", r.Alert, r.Labels["severity"])
		}
		for _, name := range []string{"summary", "description"} {
			if r.Annotations[name] == "" {
				t.Errorf("%s: it has no %s", r.Alert, name)
			}
		}
		anchor, ours := strings.CutPrefix(r.Annotations["runbook_url"], runbookURL)
		switch {
		case !ours || anchor != strings.ToLower(r.Alert):
			t.Errorf("%s: its runbook_url is %q, want %s%s", r.Alert, r.Annotations["runbook_url"], runbookURL, strings.ToLower(r.Alert))
		case !slices.Contains(sections, r.Alert):
			t.Errorf("%s: deploy/RUNBOOK.md has no section of that name", r.Alert)
		}
	}
}

// runbookSections are the headings of the runbook.
func runbookSections(t *testing.T) (names []string) {
	t.Helper()
	data, err := os.ReadFile(runbookPath)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(data), -1) {
		names = append(names, m[1])
	}
	return names
}

// The runbook has no section of an alert that is gone.
func TestRunbookHasNoOthers(t *testing.T) {
	t.Parallel()
	var alerts []string
	for _, r := range alertRules(t) {
		alerts = append(alerts, r.Alert)
	}
	for _, name := range runbookSections(t) {
		if strings.HasPrefix(name, "Dupip") && !slices.Contains(alerts, name) {
			t.Errorf("deploy/RUNBOOK.md: %s is no alert", name)
		}
	}
}

// The rules, their cases and the runbook name only metrics that there are.
func TestAlertsNameMetrics(t *testing.T) {
	t.Parallel()
	// The reporter's are in one file.
	reporter, err := os.ReadFile("../../cmd/reporter/metrics.go")
	if err != nil {
		t.Fatal(err)
	}
	known := append(metricNames(t), regexp.MustCompile(`\bdupip_[a-z_]+`).FindAllString(string(reporter), -1)...)
	for _, path := range append(casePaths(t), alertsPath, runbookPath) {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`\bdupip_[a-z_]+`).FindAllString(string(data), -1) {
			if !slices.Contains(known, name) {
				t.Errorf("%s: %s is no metric", filepath.Base(path), name)
			}
		}
	}
}

// Critical alerts fire at once, because conflicts are verified. If one waits, its expression has the past of each agent.
func TestAlertsAtOnce(t *testing.T) {
	t.Parallel()
	for _, r := range alertRules(t) {
		if r.Labels["severity"] == "critical" && (r.interval == 0 || r.interval > 15*time.Second) {
			t.Errorf("%s is evaluated every %v: at once is at most 15 s", r.Alert, r.interval)
		}
		if r.Labels["severity"] == "critical" && r.For != "" {
			t.Errorf("%s is critical and waits %s", r.Alert, r.For)
		}
	}
}
