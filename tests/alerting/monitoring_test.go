package alerting

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/dupip/dupip/tests/lab"
)

// Where the parts listen, in a netns of their own.
const (
	prometheusAddress   = "127.0.0.1:9090"
	alertmanagerPort    = "9093"
	alertmanagerAddress = "127.0.0.1:" + alertmanagerPort
	webhookAddress      = "127.0.0.1:9099"
)

// monitoring is what the person on call uses: a node with a Prometheus that scrapes all agents, its
// Alertmanager, and a webhook that receives the notifications.
type monitoring struct {
	t      *lab.T
	node   *lab.Node
	dir    string
	client *http.Client

	prometheus, alertmanager *lab.Process

	mu            sync.Mutex
	notifications []notification
}

// notification is what a receiver gets.
type notification struct {
	received time.Time

	Status      string
	GroupLabels map[string]string
	Alerts      []alert
}

// alert is an alert of Prometheus as Alertmanager sends it.
type alert struct {
	Status      any // a string in notifications, an object in the API
	Labels      map[string]string
	Annotations map[string]string
	StartsAt    time.Time
	UpdatedAt   time.Time
}

func (a alert) String() string {
	return fmt.Sprintf("%s (%s)", a.Labels["alertname"], a.Annotations["summary"])
}

// newMonitoring sets the parts up on a node of their own. The rules are those that are deployed,
// with all their times divided by hurry; 1 leaves them as they are.
func newMonitoring(t *lab.T, agents []*lab.Agent, hurry int) *monitoring {
	t.Helper()
	d := newDesk(t)
	rules, err := os.ReadFile("../../deploy/alerts.yaml")
	t.Do(err)
	d.write("alerts.yaml", hurried(string(rules), hurry))
	var targets []string
	for _, a := range agents {
		targets = append(targets, net.JoinHostPort(a.Node.Uplink().String(), "9951"))
	}
	d.writeYAML("prometheus.yaml", map[string]any{
		"global":         map[string]any{"scrape_interval": "1s", "evaluation_interval": "1s"},
		"rule_files":     []string{"alerts.yaml"},
		"scrape_configs": []any{map[string]any{"job_name": "agents", "static_configs": targetsOf(targets...)}},
		"alerting": map[string]any{"alertmanagers": []any{
			map[string]any{"static_configs": targetsOf(alertmanagerAddress)},
		}},
	})
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of Prometheus:\n%s", d.prometheus.Log())
		}
	})
	d.startPrometheus()
	d.startAlertmanager()
	d.eventually("all agents in Prometheus", func() error {
		return d.yields(`up == 1 and on (instance) dupip_build_info`, len(agents))
	})
	return d
}

// newDesk is the node with the webhook, and the configuration of Alertmanager.
func newDesk(t *lab.T) *monitoring {
	t.Helper()
	d := &monitoring{t: t, node: t.Node("desk"), dir: t.TempDir()}
	d.client = d.node.HTTPClient()
	d.client.Timeout = 10 * time.Second
	d.listen()
	d.writeYAML("alertmanager.yaml", runbookConfig(t))
	t.Cleanup(func() {
		if t.Failed() && d.alertmanager != nil {
			t.Logf("log of Alertmanager:\n%s", d.alertmanager.Log())
		}
	})
	return d
}

// startAlertmanager starts it, for the first time or again, for other nodes, too.
func (d *monitoring) startAlertmanager() {
	d.t.Helper()
	d.alertmanager = d.launchAlertmanager("alertmanager", alertmanagerPort)
	d.eventually("Alertmanager", func() error {
		return getJSON(d.t.Context(), d.client, "http://"+alertmanagerAddress+"/-/ready", nil)
	})
}

// launchAlertmanager starts one with the configuration and the storage of a name.
func (d *monitoring) launchAlertmanager(name, port string, flags ...string) *lab.Process {
	d.t.Helper()
	p, err := startProcess(d.node, []string{"prometheus-alertmanager", "alertmanager"}, append(flags,
		"--config.file", filepath.Join(d.dir, name+".yaml"), "--storage.path", filepath.Join(d.dir, name),
		"--web.listen-address", ":"+port, "--cluster.listen-address", "")...)
	d.t.Do(err)
	return p
}

// startPrometheus starts it, for the first time or again.
func (d *monitoring) startPrometheus() {
	d.t.Helper()
	var err error
	d.prometheus, err = startProcess(d.node, []string{"prometheus"},
		"--config.file", filepath.Join(d.dir, "prometheus.yaml"), "--storage.tsdb.path", filepath.Join(d.dir, "prometheus"),
		"--web.listen-address", prometheusAddress)
	d.t.Do(err)
	d.eventually("Prometheus", func() error {
		return getJSON(d.t.Context(), d.client, "http://"+prometheusAddress+"/-/ready", nil)
	})
}

func targetsOf(addresses ...string) []any {
	return []any{map[string]any{"targets": addresses}}
}

func (d *monitoring) write(name, text string) {
	d.t.Helper()
	d.t.Do(os.WriteFile(filepath.Join(d.dir, name), []byte(text), 0o600))
}

func (d *monitoring) writeYAML(name string, doc any) {
	d.t.Helper()
	text, err := yaml.Marshal(doc)
	d.t.Do(err)
	d.write(name, string(text))
}

// duration is a time in a rule: its "for", or the range of a query.
var duration = regexp.MustCompile(`(\[|offset |for: )(\d+)([mh])\b`)

// hurried are rules whose times are shorter, and that are evaluated every second.
func hurried(rules string, by int) string {
	rules = regexp.MustCompile(`(?m)^( *interval: ).*$`).ReplaceAllString(rules, "${1}1s")
	return duration.ReplaceAllStringFunc(rules, func(found string) string {
		m := duration.FindStringSubmatch(found)
		n, err := strconv.Atoi(m[2])
		if err != nil {
			panic(err) // the pattern matches digits
		}
		unit := time.Minute
		if m[3] == "h" {
			unit = time.Hour
		}
		return fmt.Sprintf("%s%dms", m[1], (time.Duration(n) * unit / time.Duration(by)).Milliseconds())
	})
}

// runbookConfig is the runbook's configuration of Alertmanager, with the webhook of the tests. A
// group is evaluated again after a second instead of a minute, so that duplicate notifications show.
func runbookConfig(t *lab.T) map[string]any {
	t.Helper()
	runbook, err := os.ReadFile("../../deploy/RUNBOOK.md")
	t.Do(err)
	for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(runbook), -1) {
		if !strings.HasPrefix(m[1], "route:") {
			continue
		}
		text := regexp.MustCompile(`group_interval: .*`).ReplaceAllString(m[1], "group_interval: 1s")
		var config map[string]any
		t.Do(yaml.Unmarshal([]byte(text), &config))
		for _, r := range config["receivers"].([]any) {
			r.(map[string]any)["webhook_configs"] = []any{
				map[string]any{"url": "http://" + webhookAddress, "send_resolved": true},
			}
		}
		return config
	}
	t.Fatal("deploy/RUNBOOK.md has no configuration of Alertmanager")
	return nil
}

// listen begins to take notifications.
func (d *monitoring) listen() {
	d.t.Helper()
	var listener net.Listener
	d.t.Do(d.node.Exec(func() (err error) {
		listener, err = net.Listen("tcp", webhookAddress)
		return err
	}))
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := notification{received: time.Now()}
		if err := json.NewDecoder(r.Body).Decode(&n); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.notifications = append(d.notifications, n)
	})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	d.t.OnClose(func() error {
		err := server.Close()
		<-done
		return err
	})
}

// received are the notifications so far.
func (d *monitoring) received() []notification {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]notification(nil), d.notifications...)
}

// sample is one of an instant vector.
type sample struct {
	labels map[string]string
	value  float64
}

// query evaluates an expression in Prometheus.
func (d *monitoring) query(expression string) ([]sample, error) {
	var answer struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	u := "http://" + prometheusAddress + "/api/v1/query?" + url.Values{"query": {expression}}.Encode()
	if err := getJSON(d.t.Context(), d.client, u, &answer); err != nil {
		return nil, err
	}
	var all []sample
	for _, r := range answer.Data.Result {
		text, _ := r.Value[1].(string)
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("query %s: %w", expression, err)
		}
		all = append(all, sample{r.Metric, value})
	}
	return all, nil
}

// yields returns an error unless the expression has so many results now.
func (d *monitoring) yields(expression string, want int) error {
	samples, err := d.query(expression)
	if err == nil && len(samples) != want {
		err = fmt.Errorf("%s yields %v, want %d", expression, samples, want)
	}
	return err
}

// fired are the names of all alerts that have fired since Prometheus began.
func (d *monitoring) fired() ([]sample, error) {
	return d.query(`count by (alertname) (max_over_time(ALERTS{alertstate="firing"}[1h]))`)
}

// group are alerts that Alertmanager holds together.
type group struct {
	Labels map[string]string
	Alerts []alert
}

// groups are those with alerts that are not over.
func (d *monitoring) groups() (all []group, err error) {
	err = getJSON(d.t.Context(), d.client, "http://"+alertmanagerAddress+"/api/v2/alerts/groups", &all)
	return all, err
}

// oneGroup returns the only group with the only alert of that name in it, or why there is none.
func (d *monitoring) oneGroup(alertname string) (group, error) {
	groups, err := d.groups()
	if err != nil {
		return group{}, err
	}
	if len(groups) != 1 || len(groups[0].Alerts) != 1 || groups[0].Alerts[0].Labels["alertname"] != alertname {
		return group{}, fmt.Errorf("Alertmanager holds %v, want one group with one %s", groups, alertname)
	}
	return groups[0], nil
}

// none returns what Alertmanager holds as an error.
func (d *monitoring) none() error {
	groups, err := d.groups()
	if err == nil && len(groups) > 0 {
		err = fmt.Errorf("Alertmanager holds %v, want nothing", groups)
	}
	return err
}

// eventually polls until ok returns nil, and fails the test when that takes too long.
func (d *monitoring) eventually(what string, ok func() error) {
	d.t.Helper()
	if err := lab.Poll(d.t.Context(), patience, ok); err != nil {
		d.t.Fatal(fmt.Errorf("%s: %w", what, err))
	}
}
