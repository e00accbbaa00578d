package main

import "strings"

const (
	width   = 24 // of Grafana's grid
	runbook = "https://github.com/dupip/dupip/blob/main/deploy/RUNBOOK.md"
)

var source = datasource{Type: "prometheus", UID: "${datasource}"}

// row is a heading with panels below it.
type row struct {
	title  string
	panels []panel
}

func newDashboard(rows []row) dashboard {
	return dashboard{
		UID:           "dupip",
		Title:         "dupip",
		Description:   "Duplicate pod IPs, and whether the agents that look for them see everything. The first row says whether anything is wrong.",
		Tags:          []string{"dupip", "kubernetes", "network"},
		SchemaVersion: 38,
		Editable:      true,
		GraphTooltip:  1, // one crosshair for all
		Time:          timeRange{From: "now-6h", To: "now"},
		Refresh:       "30s",
		Links:         []link{{Title: "Runbook", Type: "link", URL: runbook, Icon: "doc", TargetBlank: true}},
		Templating: templating{List: []variable{
			{Name: "datasource", Label: "Prometheus", Type: "datasource", Query: "prometheus", Refresh: 1, Current: struct{}{}},
			choice("cluster", "Cluster", `label_values(dupip_node_info, cluster)`),
			choice("node", "Node", `label_values(dupip_node_info{cluster=~"$cluster"}, node)`),
		}},
		Panels: place(rows),
	}
}

// choice is a variable of which one may choose several values. All of them are ".*": a
// list of 5,000 names is no regular expression, and without the label the empty value
// has to match.
func choice(name, label, values string) variable {
	return variable{
		Name: name, Label: label, Type: "query", Datasource: &source, Definition: values,
		Query:   map[string]any{"query": values, "refId": "Variable-" + name},
		Refresh: 2, // when the time range changes
		Sort:    1, Multi: true, IncludeAll: true, AllValue: ".*",
		Current: map[string]any{"selected": true, "text": []string{"All"}, "value": []string{"$__all"}},
	}
}

// place puts the panels of a row from left to right, line by line, as wide and high as
// each says.
func place(rows []row) (all []panel) {
	y := 0
	add := func(p panel, x int) {
		p.ID, p.GridPos.X, p.GridPos.Y = len(all)+1, x, y
		all = append(all, p)
	}
	for _, r := range rows {
		add(panel{Type: "row", Title: r.title, GridPos: gridPos{H: 1, W: width}, Collapsed: new(false)}, 0)
		y++
		x, high := 0, 0
		for _, p := range r.panels {
			if x+p.GridPos.W > width {
				x, y, high = 0, y+high, 0
			}
			add(p, x)
			x, high = x+p.GridPos.W, max(high, p.GridPos.H)
		}
		y += high
	}
	return all
}

// chosen are the agents of the chosen clusters and nodes.
const chosen = `dupip_node_info{cluster=~"$cluster", node=~"$node"}`

// query writes out two words. HERE leaves the series of the chosen agents; NODE does so,
// too, and gives each the name of its node. The job tells an agent from another program
// that a relabelling gives the same instance, such as the node's name.
func query(text string) string {
	return strings.NewReplacer(
		"HERE", "and on (cluster, job, instance) "+chosen,
		"NODE", "* on (cluster, job, instance) group_left (node) max by (cluster, job, instance, node) ("+chosen+")",
	).Replace(strings.TrimSpace(text))
}
