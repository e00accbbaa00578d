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
	"unicode/utf8"
)

const dashboardPath = "../../deploy/dashboard.json"

// dashboardPanel is a panel of the file, as far as it is looked at here.
type dashboardPanel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ H, W, X, Y int }
	Datasource               struct{ UID string }
	Targets                  []struct {
		RefID, Expr    string
		Datasource     struct{ UID string }
		Instant, Range bool
	}
}

func readDashboard(t *testing.T, into any) {
	t.Helper()
	data, err := os.ReadFile(dashboardPath)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", dashboardPath, err)
	}
}

func dashboardPanels(t *testing.T) []dashboardPanel {
	t.Helper()
	var file struct{ Panels []dashboardPanel }
	readDashboard(t, &file)
	if len(file.Panels) < 10 {
		t.Fatalf("%s has %d panels", dashboardPath, len(file.Panels))
	}
	return file.Panels
}

// The panels fill Grafana's grid of 24 columns from the left, and none lies on another.
func TestDashboardLayout(t *testing.T) {
	t.Parallel()
	type cell struct{ x, y int }
	taken := make(map[cell]string)
	ids := make(map[int]bool)
	for i, p := range dashboardPanels(t) {
		g := p.GridPos
		if ids[p.ID] || p.ID < 1 {
			t.Errorf("%s: its id %d is not its own", p.Title, p.ID)
		}
		ids[p.ID] = true
		if g.X < 0 || g.W < 1 || g.H < 1 || g.X+g.W > 24 {
			t.Errorf("%s: %+v is not within 24 columns", p.Title, g)
		}
		for y := range g.H {
			for x := range g.W {
				c := cell{g.X + x, g.Y + y}
				if other, ok := taken[c]; ok {
					t.Fatalf("%s lies on %s at %+v", p.Title, other, c)
				}
				taken[c] = p.Title
			}
		}
		if p.Type == "row" && (g.X != 0 || g.W != 24 || g.H != 1) {
			t.Errorf("row %s: %+v", p.Title, g)
		}
		// Whatever is wrong has to be seen without scrolling.
		if i == 0 && (p.Type != "row" || p.Title != "Now") || p.Type == "stat" && g.Y > 5 {
			t.Errorf("%s: %+v", p.Title, g)
		}
	}
	bottom := 0
	for c := range taken {
		bottom = max(bottom, c.y+1)
	}
	for y := range bottom {
		for x := range 24 {
			if taken[cell{x, y}] == "" {
				t.Fatalf("nothing is at column %d of line %d", x, y)
			}
		}
	}
}

// A panel says what it shows and when to worry, in one sentence that fits a tooltip.
func TestDashboardTexts(t *testing.T) {
	t.Parallel()
	titles := make(map[string]bool)
	for _, p := range dashboardPanels(t) {
		if titles[p.Title] || p.Title == "" {
			t.Errorf("%q is the title of two", p.Title)
		}
		titles[p.Title] = true
		if p.Type == "row" {
			continue
		}
		text := p.Description
		if n := utf8.RuneCountInString(text); n < 40 || n > 220 || !strings.HasSuffix(text, ".") || strings.Contains(text, ". ") {
			t.Errorf("%s: %q is not one sentence of 40 to 220 letters", p.Title, text)
		}
		if p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
			t.Errorf("%s: it has the data source %q and %d queries", p.Title, p.Datasource.UID, len(p.Targets))
		}
		refs := make(map[string]bool)
		for _, q := range p.Targets {
			if refs[q.RefID] || q.Datasource.UID != "${datasource}" || q.Instant == q.Range {
				t.Errorf("%s: query %+v", p.Title, q)
			}
			refs[q.RefID] = true
			// The ten that are first change from step to step, and all of them would be drawn.
			if q.Range && strings.Contains(q.Expr, "topk") {
				t.Errorf("%s: topk over time", p.Title)
			}
		}
	}
}

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
	"dupip_config_last_reload_timestamp_seconds": "dupip status says it",
}

// The queries name only metrics that there are, and leave none out by accident. Those of
// the process and of Go are compared with a real agent's in tests/alerting.
func TestDashboardNamesMetrics(t *testing.T) {
	t.Parallel()
	known := metricNames(t)
	shown := make(map[string]bool)
	for _, p := range dashboardPanels(t) {
		for _, q := range p.Targets {
			for _, name := range metricsIn(q.Expr) {
				base := strings.TrimSuffix(name, "_bucket")
				foreign := name == "up" || strings.HasPrefix(name, "process_") || strings.HasPrefix(name, "go_")
				if !foreign && !slices.Contains(known, base) {
					t.Errorf("%s: %s is no metric of the agent", p.Title, name)
				}
				shown[base] = true
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
	// Strings, selectors, lists of labels and durations.
	notMetrics = regexp.MustCompile(`"[^"]*"|\{[^}]*\}|\b(?:by|on|group_left)\s*\([^)]*\)|\[[^\]]*\]|\boffset\s+\w+`)
	words      = regexp.MustCompile(`\b([a-zA-Z_:][a-zA-Z0-9_:]*)(\s*\()?`)
	operators  = []string{"and", "or", "unless", "bool"}
)

// metricsIn are the names of metrics in a query that Prometheus takes: the words that are
// neither functions nor operators.
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

// The variables are those of the queries, and take whatever label a cluster may lack.
func TestDashboardVariables(t *testing.T) {
	t.Parallel()
	var file struct {
		UID, Title, Refresh string
		Time                struct{ From, To string }
		Templating          struct {
			List []struct {
				Name, Type, AllValue string
				Multi, IncludeAll    bool
			}
		}
	}
	readDashboard(t, &file)
	if file.UID != "dupip" || file.Title != "dupip" || file.Refresh != "30s" || file.Time.From != "now-6h" {
		t.Errorf("%+v", file)
	}
	var names []string
	for _, v := range file.Templating.List {
		names = append(names, v.Name)
		if v.Type == "query" && (!v.Multi || !v.IncludeAll || v.AllValue != ".*") {
			t.Errorf("%+v: want several, or all of them by .*", v)
		}
	}
	if want := []string{"datasource", "cluster", "node"}; !slices.Equal(names, want) {
		t.Errorf("the variables are %q, want %q", names, want)
	}
}
