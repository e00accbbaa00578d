package deploy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/bargauge"
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// The dashboard is as Grafana's schema says, of which the types are made: each field that it has is one of them and has their type.
// Those that it has not get Grafana's defaults.
func TestDashboardSchema(t *testing.T) {
	t.Parallel()
	types := cog.NewRuntime()
	for _, panel := range []variants.PanelcfgConfig{bargauge.VariantConfig(), stat.VariantConfig(), table.VariantConfig(), timeseries.VariantConfig()} {
		types.RegisterPanelcfgVariant(panel)
	}
	types.RegisterDataqueryVariant(prometheus.VariantConfig())
	var file any
	readDashboard(t, &file)
	data, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range unknownToGrafana(data) {
		t.Error(err)
	}
	// What is wrong is found, in the dashboard and in what belongs to a panel's type or a query.
	for right, wrong := range map[string]string{
		`"refresh":`: `"refreshed":`, `"unit":`: `"units":`, `"reduceOptions":`: `"reduce":`, `"fillOpacity":`: `"fill":`, `"legendFormat":`: `"legend":`,
		`"w":24`: `"w":25`, `"editable":true`: `"editable":1`, `"collapsed":false`: `"collapsed":"no"`,
	} {
		changed := bytes.Replace(data, []byte(right), []byte(wrong), 1)
		if errs := unknownToGrafana(changed); bytes.Equal(changed, data) || len(errs) != 1 {
			t.Errorf("%s instead of %s: %v", wrong, right, errs)
		}
	}
}

// unknownToGrafana returns an error for each field of a dashboard that Grafana does not know, or one for a wrong value.
func unknownToGrafana(data []byte) []error {
	var typed dashboard.Dashboard //nolint:staticcheck // the format that all versions of Grafana read, not that of the newest
	if err := json.Unmarshal(data, &typed); err != nil {
		return []error{err}
	}
	if err := typed.Validate(); err != nil {
		return []error{err}
	}
	again, err := json.Marshal(typed)
	if err != nil {
		return []error{err}
	}
	var given, known any
	if err := json.Unmarshal(data, &given); err != nil {
		return []error{err}
	}
	if err := json.Unmarshal(again, &known); err != nil {
		return []error{err}
	}
	return lost("", given, known)
}

// lost returns an error for each field that is in one document only, the first.
func lost(path string, given, known any) (errs []error) {
	switch given := given.(type) {
	case map[string]any:
		known, _ := known.(map[string]any)
		for name, value := range given {
			if at := path + "." + name; value != nil && known[name] == nil {
				errs = append(errs, fmt.Errorf("%s is unknown", at))
			} else {
				errs = append(errs, lost(at, value, known[name])...)
			}
		}
	case []any:
		known, _ := known.([]any)
		if len(known) != len(given) {
			return []error{fmt.Errorf("%s has %d elements, known are %d", path, len(given), len(known))}
		}
		for i, value := range given {
			errs = slices.Concat(errs, lost(fmt.Sprintf("%s[%d]", path, i), value, known[i]))
		}
	}
	return errs
}
