package deploy_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/dupip/dupip/internal/testneeds"
	"github.com/dupip/dupip/tests/helm"
)

// Values that cannot be intended are rejected before anything is installed, with an error that names
// the key.
func TestChartRefuses(t *testing.T) {
	for values, want := range map[string][]string{
		`{gosip: {port: 1}}`:                                     {"gosip"},
		`{image: {tagg: x}}`:                                     {"/image", "tagg"},
		`{image: {repository: ""}}`:                              {"/image/repository"},
		`{image: {tag: 1.2}}`:                                    {"/image/tag", "want string"},
		`{image: {digest: "0123"}}`:                              {"/image/digest"},
		`{image: {pullPolicy: Sometimes}}`:                       {"/image/pullPolicy", "IfNotPresent"},
		`{image: {pullSecrets: [x]}}`:                            {"/image", "pullSecrets"},
		`{imagePullSecrets: [{nam: x}]}`:                         {"/imagePullSecrets/0", "name"},
		`{imagePullSecrets: [My_Secret]}`:                        {"/imagePullSecrets/0"},
		`{gossip: {port: 70000}}`:                                {"/gossip/port", "65,535"},
		`{gossip: {port: "7951"}}`:                               {"/gossip/port", "want integer"},
		`{gossip: {port: 9951}}`:                                 {"gossip.port and metrics.port are both 9951"},
		`{gossip: {key: c2VjcmV0}}`:                              {"/gossip", "key"},
		`{gossip: {existingSecret: Secret}}`:                     {"/gossip/existingSecret"},
		`{runtime: {socket: containerd.sock}}`:                   {"/runtime/socket"},
		`{runtime: {socket: "unix:///run/crio.sock"}}`:           {"/runtime/socket"},
		`{state: {hostPath: ""}}`:                                {"/state/hostPath"},
		`{config: {shard: []}}`:                                  {"/config", "shard"},
		`{config: {networks: [{name: a, match: {peer: [x]}}]}}`:  {"/config/networks/0/match", "peer"},
		`{config: "shared: []"}`:                                 {"/config", "want object"},
		`{config: {shared: [10.0.0.1/8]}}`:                       {`config.shared: "10.0.0.1/8" has bits set after the prefix`, "10.0.0.1/32"},
		`{config: {shared: [dns]}}`:                              {`config.shared: "dns" is not a CIDR`},
		`{config: {networks: [{name: default.100}]}}`:            {`config.networks: "default.100"`, "VLAN"},
		`{config: {limits: {history: 0}}}`:                       {"/config/limits/history"},
		`{cluster: "prod\n"}`:                                    {"/cluster"},
		`{podMonitor: {interval: 0s}}`:                           {"/podMonitor/interval"},
		`{podMonitor: {interval: 1s1h}}`:                         {"/podMonitor/interval"},
		`{extraArgs: ["--min-overlap=0s"]}`:                      {`extraArgs: --min-overlap is "0s": must be 10ms to 1m`},
		`{extraArgs: ["--minoverlap=1s"]}`:                       {"extraArgs: --minoverlap is no setting of dupip agent"},
		`{extraArgs: ["--output=json"]}`:                         {"extraArgs: --output is no setting of dupip agent"},
		`{extraEnv: [{name: DUPIP_REPLICAS, value: "100"}]}`:     {`extraEnv: DUPIP_REPLICAS is "100": must be 1 to 16`},
		`{extraEnv: [{name: DUPIP_MIN_OVERLP, value: 1s}]}`:      {"extraEnv: DUPIP_MIN_OVERLP is no setting of dupip agent"},
		`{resources: {limit: {memory: 1Gi}}}`:                    {"/resources", "limit"},
		`{resources: {limits: {memroy: 1Gi}}}`:                   {"/resources/limits", "memroy"},
		`{resources: {requests: {cpus: 1}}}`:                     {"/resources/requests", "cpus"},
		`{resources: {limits: {memory: plenty}}}`:                {"/resources/limits/memory", "plenty"},
		`{resources: {requests: {cpu: -1}}}`:                     {"/resources/requests/cpu"},
		`{resources: {requests: {cpu: "-1"}}}`:                   {"/resources/requests/cpu"},
		`{resources: {requests: {memory: 64 Mi}}}`:               {"/resources/requests/memory"},
		`{resources: {requests: {memory: 64mi}}}`:                {"/resources/requests/memory"},
		`{reporter: {resources: {limits: {memory: ""}}}}`:        {"/reporter/resources/limits/memory"},
		`{reporter: {affinity: {nodeAfinity: {}}}}`:              {"/reporter/affinity", "nodeAfinity"},
		`{reporter: {podDisruptionBudget: {minAvailable: 1}}}`:   {"/reporter/podDisruptionBudget", "minAvailable"},
		`{namespaceOverride: a.b}`:                               {"/namespaceOverride"},
		`{runbookURL: wiki/dupip}`:                               {"/runbookURL"},
		`{extraVolumes: [{secret: {secretName: x}}]}`:            {"/extraVolumes/0", "name"},
		`{revisionHistoryLimit: -1}`:                             {"/revisionHistoryLimit"},
		`{podMonitor: {scrapeTimeout: 10}}`:                      {"/podMonitor/scrapeTimeout", "want string"},
		`{podMonitor: {interval: 10s, scrapeTimeout: 1m}}`:       {"podMonitor.scrapeTimeout: 1m is longer than podMonitor.interval, 10s"},
		`{podMonitor: {scrapeTimeout: 31s}}`:                     {"podMonitor.scrapeTimeout: 31s is longer than podMonitor.interval, 30s"},
		`{runbookURL: "https://wiki.example/{{x}}"}`:             {"/runbookURL"},
		`{runbookURL: 'https://wiki.example/"'}`:                 {"/runbookURL"},
		`{runbookURL: "https://wiki.example/#dupip"}`:            {"/runbookURL"},
		`{extraVolumes: [{name: netns, emptyDir: {}}]}`:          {"extraVolumes: netns is the chart's"},
		`{extraVolumeMounts: [{name: ca}]}`:                      {"/extraVolumeMounts/0", "mountPath"},
		`{podLabels: {dupip.io/component: reporter}}`:            {"podLabels: dupip.io/component is the chart's"},
		`{reporter: {podAnnotations: {dupip.io/config: x}}}`:     {"reporter.podAnnotations: dupip.io/config is the chart's"},
		`{podMonitor: {relabelings: [{target_label: x}]}}`:       {"/podMonitor/relabelings/0", "target_label"},
		`{podMonitor: {metricRelabelings: [{action: remove}]}}`:  {"/podMonitor/metricRelabelings/0/action"},
		`{updateStrategy: {type: Recreate}}`:                     {"/updateStrategy/type", "RollingUpdate"},
		`{updateStrategy: {rollingUpdate: {maxSurge: 1}}}`:       {"/updateStrategy/rollingUpdate", "maxSurge"},
		`{updateStrategy: {rollingUpdate: {maxUnavailable: 0}}}`: {"/updateStrategy/rollingUpdate/maxUnavailable"},
		`{nodeSelector: {gpu: true}}`:                            {"/nodeSelector/gpu", "want string"},
		`{tolerations: [{operator: Exist}]}`:                     {"/tolerations/0/operator", "Exists"},
		`{podLabels: {app.kubernetes.io/name: x}}`:               {"podLabels: app.kubernetes.io/name"},
		`{podMonitor: {enabled: "yes"}}`:                         {"/podMonitor/enabled", "want boolean"},
		`{podMonitor: {interval: 30}}`:                           {"/podMonitor/interval", "want string"},
		`{extraArgs: [join=x]}`:                                  {"/extraArgs/0", "join=x"},
		`{extraArgs: ["--metrics-listen=off"]}`:                  {"extraArgs: --metrics-listen", "metrics.port"},
		`{extraArgs: ["--gossip-port=8000"]}`:                    {"extraArgs: --gossip-port", "gossip.port"},
		`{extraEnv: [{name: DUPIP_ADVERTISE, value: x}]}`:        {"extraEnv: DUPIP_ADVERTISE"},
		`{extraEnv: [{name: DUPIP_API_SOCKET, value: /x}]}`:      {"extraEnv: DUPIP_API_SOCKET is the chart's"},
		`{drill: {tolerations: [{operator: Exist}]}}`:            {"/drill/tolerations/0/operator", "Exists"},
		`{extraEnv: [{name: GOGC, value: 50}]}`:                  {"/extraEnv/0/value", "want string"},

		// Metrics, labels, dashboard, alerts.
		`{metrics: {address: "127.0.0.1:80"}}`:                                       {`metrics.address: "127.0.0.1:80" is neither hostIP nor an IP address`, "metrics.port"},
		`{metrics: {address: 0.0.0.0}}`:                                              {"metrics.address: nobody can listen at 0.0.0.0 alone; leave it empty"},
		`{metrics: {address: 127}}`:                                                  {"/metrics/address", "want string"},
		`{metrics: {address: "::1"}, podMonitor: {enabled: true}}`:                   {"podMonitor.enabled: Prometheus scrapes", "metrics.address ::1; set metrics.address to hostIP"},
		`{commonLabels: {app.kubernetes.io/name: x}}`:                                {"commonLabels: app.kubernetes.io/name is the chart's: leave it out"},
		`{commonLabels: {helm.sh/chart: x}}`:                                         {"commonLabels: helm.sh/chart is the chart's"},
		`{commonLabels: {dupip.io/component: x}}`:                                    {"commonLabels: dupip.io/component is the chart's"},
		`{commonLabels: {"my team": x}}`:                                             {"/commonLabels", "my team"},
		`{commonLabels: {team: "a b"}}`:                                              {"/commonLabels/team", "a b"},
		`{commonLabels: {cost: 7}}`:                                                  {"/commonLabels/cost", "want string"},
		`{dashboard: {enable: true}}`:                                                {"/dashboard", "enable"},
		`{dashboard: {namespace: a.b}}`:                                              {"/dashboard/namespace"},
		`{prometheusRule: {alertLabels: {severity: page}}}`:                          {"prometheusRule.alertLabels: alerts have a label severity of their own"},
		`{prometheusRule: {alertLabels: {my-team: net}}}`:                            {"/prometheusRule/alertLabels", "my-team"},
		`{prometheusRule: {alertLabels: {team: "{{ $labels.x"}}}`:                    {"/prometheusRule/alertLabels/team"},
		`{prometheusRule: {overrides: {DupipDown: {for: 1h}}}}`:                      {"prometheusRule.overrides: there is no alert DupipDown", "deploy/RUNBOOK.md"},
		`{prometheusRule: {overrides: {DupipNoAgents: {for: 1}}}}`:                   {"/prometheusRule/overrides/DupipNoAgents/for", "want string"},
		`{prometheusRule: {overrides: {DupipNoAgents: {for: 1m1h}}}}`:                {"/prometheusRule/overrides/DupipNoAgents/for", "1m1h"},
		`{prometheusRule: {overrides: {DupipNoAgents: {for: ""}}}}`:                  {"/prometheusRule/overrides/DupipNoAgents/for"},
		`{prometheusRule: {overrides: {DupipNoAgents: {expr: x}}}}`:                  {"/prometheusRule/overrides/DupipNoAgents", "expr"},
		`{prometheusRule: {overrides: {DupipNoAgents: {labels: {cluster: x}}}}}`:     {"prometheusRule.overrides.DupipNoAgents: alerts have a label cluster of their own"},
		`{prometheusRule: {overrides: {DupipDuplicateAddresses: {enabled: false}}}}`: {"of more than 10 addresses in a network only DupipDuplicateAddresses tells", "prometheusRule.thresholds.addresses"},
		`{prometheusRule: {overrides: {DupipAddressesSuspected: {enabled: false}}}}`: {"only DupipAddressesSuspected tells, not DupipAddressSuspected; disable both"},
		`{prometheusRule: {thresholds: {addresses: 0}}}`:                             {"/prometheusRule/thresholds/addresses"},
		`{prometheusRule: {thresholds: {rangeLeftPercent: 100}}}`:                    {"/prometheusRule/thresholds/rangeLeftPercent"},
		`{prometheusRule: {thresholds: {rangeLeftPercent: 0.1}}}`:                    {"/prometheusRule/thresholds/rangeLeftPercent"},
	} {
		t.Run(values, func(t *testing.T) {
			t.Parallel()
			_, err := renderChart(t, "dupip", "dupip", values)
			if err == nil {
				t.Fatal("it is taken")
			}
			text := err.Error()
			if strings.Count(text, "\n") > 5 {
				t.Errorf("the error is too long:\n%s", text)
			}
			for _, want := range want {
				if !strings.Contains(text, want) {
					t.Errorf("the error lacks %q:\n%s", want, text)
				}
			}
		})
	}
}

// Each value can be missing: because it is null, or because --reuse-values brings those of a chart that did not have it. Then the chart renders
// without it, or says which one it needs.
func TestChartWithout(t *testing.T) {
	var values map[string]any
	if err := yaml.Unmarshal([]byte(readChartFile(t, chartDir+"/values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	without(t, nil, values)
}

func without(t *testing.T, above []string, values map[string]any) {
	for key, value := range values {
		path := append(slices.Clone(above), key)
		name := strings.Join(path, ".")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var set map[string]any
			err := yaml.Unmarshal([]byte(`{reporter: {enabled: true, podDisruptionBudget: {enabled: true}}, podMonitor: {enabled: true}, prometheusRule: {enabled: true}, dashboard: {enabled: true}}`), &set)
			if err != nil {
				t.Fatal(err)
			}
			at := set
			for _, k := range above {
				if at[k] == nil {
					at[k] = map[string]any{}
				}
				at = at[k].(map[string]any)
			}
			at[key] = nil
			text, err := yaml.Marshal(set)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := renderChart(t, "dupip", "dupip", string(text)); err != nil && !strings.Contains(err.Error(), "missing property '"+key+"'") && name != "gossip.existingSecret" {
				t.Error(err)
			}
		})
		if below, _ := value.(map[string]any); below != nil {
			without(t, path, below)
		}
	}
}

// The chart of a release takes its own image. The default tag of an older chart, which --reuse-values brings along, is refused.
func TestChartOfARelease(t *testing.T) {
	testneeds.Slow(t)
	seen()
	dir := t.TempDir()
	if _, err := helm.Run(t.Context(), "", "package", chartDir, "--version", "9.9.9", "--app-version", "9.9.9", "--destination", dir); err != nil {
		t.Fatal(err)
	}
	template := []string{"template", "dupip", filepath.Join(dir, "dupip-9.9.9.tgz"), "--values", "testdata/key.yaml", "--kube-version", "1.30", "--set", "prometheusRule.enabled=true"}
	text, err := helm.Run(t.Context(), "", template...)
	if err != nil || !strings.Contains(text, "image: localhost/dupip:9.9.9\n") || !strings.Contains(text, "/blob/v9.9.9/deploy/RUNBOOK.md#") || strings.Contains(text, "/blob/main/") {
		t.Errorf("%v\n%s", err, text)
	}
	if _, err := helm.Run(t.Context(), "", append(template, "--set", "image.tag=dev")...); err == nil || !strings.Contains(err.Error(), "--reset-then-reuse-values") {
		t.Errorf("the default tag of an older chart: %v", err)
	}
}
