package lab

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Metrics are the series of one scrape, by "name{label="value",…}" with the labels
// sorted; histograms are there by their _count and _sum.
type Metrics map[string]float64

// metricsPort is the default of --metrics-listen; every node has a netns of its own.
const metricsPort = "9951"

// Scrape reads /metrics of the agent as Prometheus does.
func (a *Agent) Scrape(ctx context.Context) (Metrics, error) {
	host := "127.0.0.1"
	if a.Node.lab.IPv6Only {
		host = a.Node.Address().String()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(host, metricsPort)+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	response, err := a.Node.HTTPClient().Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	metrics, err := ReadMetrics(response.Body)
	if err != nil {
		return nil, fmt.Errorf("read the metrics of %s: %w", a.Node.Name, err)
	}
	return metrics, nil
}

// ReadMetrics reads what /metrics answers.
func ReadMetrics(r io.Reader) (Metrics, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(r)
	if err != nil {
		return nil, err
	}
	samples := make(Metrics)
	for name, family := range families {
		for _, m := range family.Metric {
			key := name + labelsOf(m)
			switch {
			case m.Gauge != nil:
				samples[key] = m.Gauge.GetValue()
			case m.Counter != nil:
				samples[key] = m.Counter.GetValue()
			case m.Histogram != nil:
				samples[name+"_count"+labelsOf(m)] = float64(m.Histogram.GetSampleCount())
				samples[name+"_sum"+labelsOf(m)] = m.Histogram.GetSampleSum()
			}
		}
	}
	return samples, nil
}

// labelsOf writes the labels of a sample, which are sorted by name.
func labelsOf(m *dto.Metric) string {
	if len(m.Label) == 0 {
		return ""
	}
	var pairs []string
	for _, l := range m.Label {
		pairs = append(pairs, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
	}
	return "{" + strings.Join(pairs, ",") + "}"
}

// Find returns the series of a name whose labels include all of these, each as
// `name="value"`.
func (m Metrics) Find(name string, labels ...string) (series []string) {
	for key := range m {
		if base, _, _ := strings.Cut(key, "{"); base != name {
			continue
		}
		all := true
		for _, label := range labels {
			all = all && (strings.Contains(key, "{"+label) || strings.Contains(key, ","+label))
		}
		if all {
			series = append(series, key)
		}
	}
	return series
}
