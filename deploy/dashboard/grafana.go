package main

// The part of Grafana's dashboard model that is used here, in the form of Grafana 10.0,
// which newer ones take.

type dashboard struct {
	UID           string     `json:"uid"`
	Title         string     `json:"title"`
	Description   string     `json:"description"`
	Tags          []string   `json:"tags"`
	SchemaVersion int        `json:"schemaVersion"`
	Editable      bool       `json:"editable"`
	GraphTooltip  int        `json:"graphTooltip"`
	Time          timeRange  `json:"time"`
	Refresh       string     `json:"refresh"`
	Links         []link     `json:"links"`
	Templating    templating `json:"templating"`
	Panels        []panel    `json:"panels"`
}

type timeRange struct {
	From string `json:"from"`
	To   string `json:"to"`
}

type link struct {
	Title       string `json:"title"`
	Type        string `json:"type"`
	URL         string `json:"url"`
	Icon        string `json:"icon"`
	TargetBlank bool   `json:"targetBlank"`
}

type templating struct {
	List []variable `json:"list"`
}

type variable struct {
	Name       string      `json:"name"`
	Label      string      `json:"label"`
	Type       string      `json:"type"`
	Datasource *datasource `json:"datasource,omitempty"`
	Query      any         `json:"query"`
	Definition string      `json:"definition,omitempty"`
	Refresh    int         `json:"refresh"`
	Sort       int         `json:"sort,omitempty"`
	Multi      bool        `json:"multi"`
	IncludeAll bool        `json:"includeAll"`
	AllValue   string      `json:"allValue,omitempty"`
	Current    any         `json:"current"`
}

type datasource struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

type panel struct {
	ID              int              `json:"id"`
	Type            string           `json:"type"`
	Title           string           `json:"title"`
	Description     string           `json:"description,omitempty"`
	GridPos         gridPos          `json:"gridPos"`
	Datasource      *datasource      `json:"datasource,omitempty"`
	PluginVersion   string           `json:"pluginVersion,omitempty"`
	Interval        string           `json:"interval,omitempty"`
	MaxDataPoints   int              `json:"maxDataPoints,omitempty"`
	Targets         []target         `json:"targets,omitempty"`
	FieldConfig     *fieldConfig     `json:"fieldConfig,omitempty"`
	Options         any              `json:"options,omitempty"`
	Transformations []transformation `json:"transformations,omitempty"`
	Collapsed       *bool            `json:"collapsed,omitempty"`
	Panels          []panel          `json:"panels,omitempty"`
}

type gridPos struct {
	H int `json:"h"`
	W int `json:"w"`
	X int `json:"x"`
	Y int `json:"y"`
}

type target struct {
	RefID        string     `json:"refId"`
	Datasource   datasource `json:"datasource"`
	Expr         string     `json:"expr"`
	LegendFormat string     `json:"legendFormat,omitempty"`
	Format       string     `json:"format"`
	Instant      bool       `json:"instant"`
	Range        bool       `json:"range"`
}

type fieldConfig struct {
	Defaults  defaults   `json:"defaults"`
	Overrides []override `json:"overrides"`
}

type defaults struct {
	Unit       string     `json:"unit,omitempty"`
	Decimals   *int       `json:"decimals,omitempty"`
	Min        *float64   `json:"min,omitempty"`
	NoValue    string     `json:"noValue,omitempty"`
	Color      color      `json:"color"`
	Thresholds thresholds `json:"thresholds"`
	Custom     any        `json:"custom,omitempty"`
}

type color struct {
	Mode       string `json:"mode"`
	FixedColor string `json:"fixedColor,omitempty"`
}

type thresholds struct {
	Mode  string `json:"mode"`
	Steps []step `json:"steps"`
}

// step is a colour from a value on; the first has no value.
type step struct {
	Color string   `json:"color"`
	Value *float64 `json:"value"`
}

type override struct {
	Matcher    matcher    `json:"matcher"`
	Properties []property `json:"properties"`
}

type matcher struct {
	ID      string `json:"id"`
	Options string `json:"options"`
}

type property struct {
	ID    string `json:"id"`
	Value any    `json:"value"`
}

type transformation struct {
	ID      string `json:"id"`
	Options any    `json:"options"`
}
