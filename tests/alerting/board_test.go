package alerting

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// board is the part of the deployed dashboard that these tests use.
type board []boardPanel

type boardPanel struct {
	Title, Type     string
	Targets         []boardQuery
	Transformations []struct {
		Options struct{ RenameByName map[string]string }
	}
}

type boardQuery struct {
	RefID, Expr, LegendFormat string
	Range                     bool
}

func readBoard(t *lab.T) board {
	t.Helper()
	text, err := os.ReadFile("../../deploy/dashboard.json")
	t.Do(err)
	var file struct{ Panels board }
	t.Do(json.Unmarshal(text, &file))
	return slices.DeleteFunc(file.Panels, func(p boardPanel) bool { return p.Type == "row" })
}

// panel is the one of that title.
func (b board) panel(t *lab.T, title string) boardPanel {
	t.Helper()
	i := slices.IndexFunc(b, func(p boardPanel) bool { return p.Title == title })
	if i < 0 {
		t.Fatal("no panel " + title)
	}
	return b[i]
}

// on is the query as Grafana sends it for these nodes, a regular expression.
func (q boardQuery) on(nodes string) string {
	return strings.NewReplacer("$cluster", ".*", "$node", nodes, "$__rate_interval", "10s").Replace(q.Expr)
}

// answer is what Grafana gets for a query now, or over the last minutes: of every series
// the latest value that is a number.
func (d *monitoring) answer(q boardQuery) (all []sample, err error) {
	if !q.Range {
		return d.query(q.on(".*"))
	}
	now := time.Now()
	seconds := func(at time.Time) string { return strconv.FormatInt(at.Unix(), 10) }
	u := "http://" + prometheusAddress + "/api/v1/query_range?" + url.Values{
		"query": {q.on(".*")}, "start": {seconds(now.Add(-5 * time.Minute))}, "end": {seconds(now)}, "step": {"1"},
	}.Encode()
	var answer struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Values [][2]any
			}
		}
	}
	if err := getJSON(d.t.Context(), d.client, u, &answer); err != nil {
		return nil, err
	}
	for _, r := range answer.Data.Result {
		for _, v := range slices.Backward(r.Values) {
			text, _ := v[1].(string)
			if value, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(value) {
				all = append(all, sample{r.Metric, value})
				break
			}
		}
	}
	return all, nil
}

// want polls until a query has this one value.
func (d *monitoring) want(query string, value float64) {
	d.t.Helper()
	d.eventually(query, func() error {
		samples, err := d.query(query)
		if err == nil && (len(samples) != 1 || samples[0].value != value) {
			err = fmt.Errorf("%v, want %v", samples, value)
		}
		return err
	})
}

// Without a runtime pods have no names, and Prometheus has no labels without a value.
const podLabel = "source_pod"

// wantAnswers waits until every query of the dashboard has an answer with the labels that
// its legend names.
func (d *monitoring) wantAnswers(b board) {
	d.t.Helper()
	label := regexp.MustCompile(`\{\{(\w+)\}\}`)
	d.eventually("an answer in every panel", func() error {
		var missing []error
		for _, p := range b {
			for _, q := range p.Targets {
				samples, err := d.answer(q)
				name := p.Title + ": " + q.LegendFormat
				switch {
				case err != nil:
					missing = append(missing, fmt.Errorf("%s: %w", name, err))
					continue
				case len(samples) == 0:
					missing = append(missing, fmt.Errorf("%s: no answer to %s", name, q.on(".*")))
					continue
				}
				for _, m := range label.FindAllStringSubmatch(q.LegendFormat, -1) {
					has := func(s sample) bool { return s.labels[m[1]] != "" }
					if m[1] != podLabel && !slices.ContainsFunc(samples, has) {
						missing = append(missing, fmt.Errorf("%s: no series has the label %s", name, m[1]))
					}
				}
			}
		}
		return errors.Join(missing...)
	})
}

// wantRow checks the table of conflicts: one row for the address with both nodes and the start time,
// and every column exists.
func (d *monitoring) wantRow(b board, ip netip.Addr, nodes ...string) {
	d.t.Helper()
	p := b.panel(d.t, "Open conflicts")
	fields := make(map[string]bool)
	for _, q := range p.Targets {
		var s sample
		d.eventually("one row", func() error { // a late scrape leaves none for a moment
			samples, err := d.query(q.on(".*"))
			if err != nil {
				return err
			}
			if len(samples) != 1 || samples[0].labels["ip"] != ip.String() {
				return fmt.Errorf("%s: %v, want one row for %v", q.on(".*"), samples, ip)
			}
			s = samples[0]
			return nil
		})
		fields["Value #"+q.RefID] = true
		for name, value := range s.labels {
			fields[name] = value != ""
		}
		switch q.RefID {
		case "A":
			got := []string{s.labels["first_node"], s.labels["second_node"]}
			if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(nodes))) {
				d.t.Errorf("the row has the nodes %q, want %q", got, nodes)
			}
			if since := time.Since(time.UnixMilli(int64(s.value))); since < 0 || since > 2*patience {
				d.t.Errorf("the row is %v old", since)
			}
		case "B":
			if s.value != 2 {
				d.t.Errorf("the row has %v holders", s.value)
			}
		}
	}
	for _, t := range p.Transformations {
		for field, title := range t.Options.RenameByName {
			if !fields[field] && !slices.Contains([]string{"first_pod", "second_pod"}, field) {
				d.t.Errorf("the column %s: there is no %s in %v", title, field, slices.Sorted(maps.Keys(fields)))
			}
		}
	}
}
