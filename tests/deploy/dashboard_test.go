package deploy_test

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const dashboardPath = "../../deploy/dashboard.json"

// dashboardPanel is the part of a panel that these tests use.
type dashboardPanel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ H, W, X, Y int }
	Datasource               struct{ UID string }
	Interval                 string
	MaxDataPoints            int
	Panels                   []any // of a collapsed row
	Targets                  []struct {
		RefID, Expr, LegendFormat string
		Datasource                struct{ UID string }
		Instant, Range            bool
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

// The file has one form, so that an edit by hand and an export from Grafana show only what they
// change: fields in alphabetical order, two spaces.
func TestDashboardFormat(t *testing.T) {
	t.Parallel()
	var file any
	readDashboard(t, &file)
	var want bytes.Buffer
	enc := json.NewEncoder(&want)
	enc.SetEscapeHTML(false) // queries compare: a < b
	enc.SetIndent("", "  ")
	if err := enc.Encode(file); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(dashboardPath)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Error("deploy/dashboard.json is not formatted: replace it with the output of jq -S . deploy/dashboard.json")
	}
}

// The panels fill Grafana's grid of 24 columns from the left and do not overlap.
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
		if p.Type == "row" && (g.X != 0 || g.W != 24 || g.H != 1 || len(p.Panels) > 0) {
			t.Errorf("row %s: %+v, and %d panels are collapsed in it, want none", p.Title, g, len(p.Panels))
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

// A panel's description is one sentence that fits a tooltip: what it shows and when to worry.
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
		// Those that Grafana has without plugins.
		if !slices.Contains([]string{"bargauge", "stat", "table", "timeseries"}, p.Type) {
			t.Errorf("%s: the type of the panel is %q", p.Title, p.Type)
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
			// A rate needs several scrapes. And 5,000 agents have 75,000 series of the histogram: with
			// as many points as a screen is wide, Prometheus would refuse the query as too large.
			if q.Range && (p.Interval != "30s" || p.MaxDataPoints < 1 || p.MaxDataPoints > 100) {
				t.Errorf("%s: interval %q and %d points, want 30s and at most 100", p.Title, p.Interval, p.MaxDataPoints)
			}
			// The ten that are first change from step to step, and all of them would be drawn.
			if q.Range && strings.Contains(q.Expr, "topk") {
				t.Errorf("%s: topk over time", p.Title)
			}
		}
	}
}

// The variables are those of the queries. A query variable allows several values, and stands for
// .* when all are chosen: a list of 5,000 names is no regular expression, and agents without the
// label cluster have to match.
func TestDashboardVariables(t *testing.T) {
	t.Parallel()
	var file struct {
		UID, Title, Refresh string
		SchemaVersion       int
		Time                struct{ From, To string }
		Templating          struct {
			List []struct {
				Name, Type, AllValue, Definition string
				Multi, IncludeAll                bool
			}
		}
	}
	readDashboard(t, &file)
	if file.UID != "dupip" || file.Title != "dupip" || file.Refresh != "30s" || file.Time.From != "now-6h" {
		t.Errorf("%+v", file)
	}
	// That of Grafana 10.0, which newer ones read, too.
	if file.SchemaVersion != 38 {
		t.Errorf("the schema version is %d, want 38", file.SchemaVersion)
	}
	values := regexp.MustCompile(`^label_values\((\w+)(?:\{.*\})?, (\w+)\)$`)
	metrics := exportedMetrics(t)
	var names []string
	for _, v := range file.Templating.List {
		names = append(names, v.Name)
		if v.Type == "query" && (!v.Multi || !v.IncludeAll || v.AllValue != ".*") {
			t.Errorf("%+v: want several, or all of them by .*", v)
		}
		if m := values.FindStringSubmatch(v.Definition); v.Type == "query" && (m == nil || !metrics[m[1]].has(m[2])) {
			t.Errorf("%s: %q names no label of a metric", v.Name, v.Definition)
		}
	}
	if want := []string{"datasource", "cluster", "node"}; !slices.Equal(names, want) {
		t.Errorf("the variables are %q, want %q", names, want)
	}
}
