package main

// size is width and height in Grafana's grid.
type size struct{ w, h int }

// at is a line's or a bar's query with its name, which may have labels as {{label}}.
func at(name, text string) target {
	return target{Datasource: source, Expr: query(text), LegendFormat: name, Format: "time_series", Range: true}
}

func now(name, text string) target {
	t := at(name, text)
	t.Range, t.Instant = false, true
	return t
}

func rowsOf(text string) target {
	t := now("", text)
	t.Format = "table"
	return t
}

func newPanel(kind, title, description string, s size, d defaults, targets []target) panel {
	for i := range targets {
		targets[i].RefID = string(rune('A' + i))
	}
	if d.Thresholds.Steps == nil {
		d.Thresholds = from("green")
	}
	return panel{
		Type: kind, Title: title, Description: description, GridPos: gridPos{W: s.w, H: s.h},
		Datasource: &source, PluginVersion: "10.0.0", Targets: targets,
		FieldConfig: &fieldConfig{Defaults: d, Overrides: []override{}},
	}
}

// from is a colour, and others from a value on.
func from(base string, steps ...step) thresholds {
	return thresholds{Mode: "absolute", Steps: append([]step{{Color: base}}, steps...)}
}

func above(value float64, color string) step { return step{Color: color, Value: &value} }

// last reduces a query's answer to its present value.
var last = map[string]any{"calcs": []string{"lastNotNull"}, "fields": "", "values": false}

// tile is one figure of now, on a ground that says what to think of it.
func tile(title, description string, colors thresholds, text string) panel {
	p := newPanel("stat", title, description, size{3, 4},
		defaults{Unit: "short", Decimals: new(0), Color: color{Mode: "thresholds"}, Thresholds: colors, NoValue: "no data"},
		[]target{now("", text)})
	p.Options = map[string]any{
		"reduceOptions": last, "colorMode": "background", "graphMode": "none", "textMode": "value",
		"justifyMode": "center", "orientation": "auto",
	}
	return p
}

// graph is lines over time, in a unit of Grafana's.
func graph(title, description string, s size, unit string, targets ...target) panel {
	return drawn(title, description, s, unit, "none", targets)
}

// area is lines over time that add up.
func area(title, description string, s size, unit string, targets ...target) panel {
	return drawn(title, description, s, unit, "normal", targets)
}

func drawn(title, description string, s size, unit, stacking string, targets []target) panel {
	fill := 10
	if stacking == "normal" {
		fill = 40
	}
	p := newPanel("timeseries", title, description, s, defaults{
		Unit: unit, Min: new(0.0), Color: color{Mode: "palette-classic"},
		Custom: map[string]any{
			"drawStyle": "line", "lineWidth": 1, "fillOpacity": fill, "showPoints": "auto", "spanNulls": false,
			"stacking": map[string]any{"mode": stacking, "group": "A"},
		},
	}, targets)
	// Rates need some scrapes each. And 5,000 agents have 75,000 series of the histogram: with
	// as many points as a screen is wide, Prometheus would refuse the query as too large.
	p.Interval, p.MaxDataPoints = "30s", 100
	p.Options = map[string]any{
		"legend": map[string]any{
			"showLegend": true, "displayMode": "table", "placement": "bottom", "calcs": []string{"lastNotNull", "max"},
		},
		"tooltip": map[string]any{"mode": "multi", "sort": "desc"},
	}
	return p
}

// top is the ten that have most now, as bars.
func top(title, description string, s size, unit string, colors thresholds, name, text string) panel {
	p := newPanel("bargauge", title, description, s,
		defaults{Unit: unit, Min: new(0.0), Color: color{Mode: "thresholds"}, Thresholds: colors, NoValue: "none"},
		[]target{now(name, "sort_desc(topk(10, "+text+"))")})
	p.Options = map[string]any{
		"reduceOptions": last, "displayMode": "basic", "orientation": "horizontal", "valueMode": "color",
		"showUnfilled": false, "minVizHeight": 10, "minVizWidth": 0,
	}
	return p
}

// column is a field of a table as people read it.
type column struct {
	field, title string
	properties   []property
}

// list is a table with these columns and no others.
func list(title, description string, s size, sortBy string, columns []column, targets ...target) panel {
	p := newPanel("table", title, description, s, defaults{
		Color: color{Mode: "thresholds"}, NoValue: "none",
		Custom: map[string]any{"align": "auto", "cellOptions": map[string]any{"type": "auto"}, "filterable": true},
	}, targets)
	p.Options = map[string]any{
		"showHeader": true, "cellHeight": "sm",
		"sortBy": []map[string]any{{"displayName": sortBy, "desc": false}},
	}
	var fields []string
	order, titles := map[string]int{}, map[string]string{}
	for i, c := range columns {
		fields = append(fields, c.field)
		order[c.field], titles[c.field] = i, c.title
		if len(c.properties) > 0 {
			p.FieldConfig.Overrides = append(p.FieldConfig.Overrides,
				override{Matcher: matcher{ID: "byName", Options: c.title}, Properties: c.properties})
		}
	}
	p.Transformations = []transformation{
		// Rows of several queries become one where their labels agree.
		{ID: "merge", Options: struct{}{}},
		{ID: "filterFieldsByName", Options: map[string]any{"include": map[string]any{"names": fields}}},
		{ID: "organize", Options: map[string]any{"indexByName": order, "renameByName": titles, "excludeByName": struct{}{}}},
	}
	return p
}
