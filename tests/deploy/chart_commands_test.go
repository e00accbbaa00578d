package deploy_test

import (
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/dupip/dupip/internal/testneeds"
	"github.com/dupip/dupip/tests/helm"
	"github.com/dupip/dupip/tests/lab"
)

// What a text tells people to run, in alerts and in the JSON of the dashboard.
var (
	command = regexp.MustCompile(`(?m)\brun( there| with the node's name as NODE)?: (.+)$`)
	quoted  = regexp.MustCompile(`\\"()((?:dupip|kubectl) [^"\\]+)\\"`)
)

// commands are those that texts of a release have.
type commands struct {
	release, namespace, values string
	anywhere                   string // how those begin that any agent, or the reporter, can answer
	labels                     string // of the agents' pods
}

var commandsOf = map[string]commands{
	"the release of the README": {
		release: "dupip", namespace: "dupip",
		anywhere: "kubectl -n dupip exec ds/dupip -- dupip ", labels: "app.kubernetes.io/name=dupip,app.kubernetes.io/instance=dupip",
	},
	"with a reporter": {
		release: "dupip", namespace: "dupip", values: `reporter: {enabled: true}, `,
		anywhere: "kubectl dupip ", labels: "app.kubernetes.io/name=dupip,app.kubernetes.io/instance=dupip",
	},
	"another release in another namespace": {
		release: "prod", namespace: "net",
		anywhere: "kubectl -n net exec ds/prod-dupip -- dupip ", labels: "app.kubernetes.io/name=dupip,app.kubernetes.io/instance=prod",
	},
	"another release with a reporter": {
		release: "prod", namespace: "net", values: `reporter: {enabled: true}, `,
		anywhere: "kubectl dupip --dupip-namespace net ", labels: "app.kubernetes.io/name=dupip,app.kubernetes.io/instance=prod",
	},
	"other names": {
		release: "a", namespace: "b", values: `fullnameOverride: finder, nameOverride: agents, `,
		anywhere: "kubectl -n b exec ds/finder -- dupip ", labels: "app.kubernetes.io/name=agents,app.kubernetes.io/instance=a",
	},
}

// pod names the pod of the agent on a node.
func (c commands) pod() string {
	return fmt.Sprintf("$(kubectl -n %s get pods -o name -l %s --field-selector spec.nodeName=NODE)", c.namespace, c.labels)
}

// there is how those commands begin that the agent of one node has to answer.
func (c commands) there() string {
	if c.labels == "" {
		return "dupip "
	}
	return fmt.Sprintf("kubectl -n %s exec %s -- dupip ", c.namespace, c.pod())
}

func (c commands) log() string {
	if c.labels == "" {
		return "journalctl -u dupip"
	}
	return fmt.Sprintf("kubectl -n %s logs %s", c.namespace, c.pod())
}

// inRelease is a text of the chart with the commands that the release of the README has.
func inRelease(text string) string {
	c := commandsOf["the release of the README"]
	return strings.NewReplacer(
		"run: dupip ", "run: "+c.anywhere, "run there: dupip ", "run with the node's name as NODE: "+c.there(),
		"run there: journalctl -u dupip", "run with the node's name as NODE: "+c.log(), "-n NAMESPACE", "-n "+c.namespace,
		`\"dupip explain`, `\"`+c.anywhere+"explain", `\"dupip status`, `\"`+c.anywhere+"status --node NODE",
	).Replace(text)
}

// A command that an alert or the dashboard shows exists where people read it, and names what the chart makes.
func TestChartCommands(t *testing.T) {
	for name, c := range commandsOf {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, err := renderChart(t, c.release, c.namespace, "{"+c.values+"prometheusRule: {enabled: true}, dashboard: {enabled: true}}")
			if err != nil {
				t.Fatal(err)
			}
			// What the table has is what the chart makes.
			template := o.daemons.Spec.Template.Labels
			for label := range strings.SplitSeq(c.labels, ",") {
				if key, value, _ := strings.Cut(label, "="); template[key] != value {
					t.Errorf("agents have not the label %s, but %v", label, template)
				}
			}
			if want := fmt.Sprintf("kubectl -n %s exec ds/%s ", o.daemons.Namespace, o.daemons.Name); o.reporter.set == nil && !strings.HasPrefix(c.anywhere, want) {
				t.Errorf("the agents are not those of %q: %q", c.anywhere, want)
			}
			explain := false
			for _, g := range o.rule.Spec.Groups {
				for _, r := range g.Rules {
					for _, m := range command.FindAllStringSubmatch(r.Annotations["description"], -1) {
						c.check(t, r.Alert, m[2])
						explain = explain || m[2] == c.anywhere+"explain {{ $labels.ip }}"
					}
					onlyThese(t, r.Alert, c, command.ReplaceAllString(r.Annotations["description"], ""))
				}
			}
			if !explain {
				t.Errorf("no alert has %sexplain", c.anywhere)
			}
			board := o.dashboard.Data["dupip.json"]
			found := quoted.FindAllStringSubmatch(board, -1)
			if len(found) != 3 {
				t.Errorf("the dashboard has the commands %q", found)
			}
			for _, m := range found {
				c.check(t, "the dashboard", m[2])
			}
			onlyThese(t, "the dashboard", c, quoted.ReplaceAllString(board, ""))
		})
	}
}

// onlyThese finds commands in the rest of a text.
func onlyThese(t *testing.T, where string, c commands, text string) {
	t.Helper()
	if m := regexp.MustCompile(`[": ](dupip (explain|conflicts|status|nodes|doctor|audit|capture|bindings)|kubectl -|NAMESPACE|journalctl).*`).FindString(text); m != "" {
		t.Errorf("%s has another command than %+v: %s", where, c, m)
	}
}

// check checks that there is a command, by the programs themselves.
func (c commands) check(t *testing.T, where, text string) {
	t.Helper()
	program, words := "dupip", ""
	switch rest, found := strings.CutPrefix(text, c.anywhere); {
	case found:
		words = rest
		if flags, plugin := strings.CutPrefix(c.anywhere, "kubectl dupip"); plugin {
			program, words = "kubectl-dupip", flags+rest
		}
	case strings.HasPrefix(text, c.there()):
		words = strings.TrimPrefix(text, c.there())
	case text == c.log(), text == "bpftool net", text == fmt.Sprintf("kubectl -n %s logs --prefix -l dupip.io/component=reporter", c.namespace):
		return
	default:
		t.Errorf("%s: nobody can run %q", where, text)
		return
	}
	path, err := lab.BuildCached("../..", "./cmd/"+program)
	if err != nil {
		t.Fatal(err)
	}
	words = strings.ReplaceAll(words, "{{ $labels.ip }}", "10.0.0.1")
	if out, err := exec.CommandContext(t.Context(), path, append(strings.Fields(words), "--help")...).CombinedOutput(); err != nil {
		t.Errorf("%s: %q: %v\n%s", where, text, err, out)
	}
}

// A host with dupip has the commands of the file, and "there" is a node that the same alert names.
func TestHostCommands(t *testing.T) {
	host := commands{anywhere: "dupip ", namespace: "NAMESPACE"}
	for _, r := range alertRules(t) {
		text := r.Annotations["description"]
		for _, m := range command.FindAllStringSubmatch(text, -1) {
			host.check(t, r.Alert, m[2])
			if m[1] != "" && !strings.Contains(text, "- node {{ .Labels.node }}") && !strings.Contains(text, "{{ $labels.instance }}") {
				t.Errorf("%s: no node is named, and %q is to be run there", r.Alert, m[2])
			}
		}
		onlyThese(t, r.Alert, host, command.ReplaceAllString(text, ""))
	}
}

// What Helm prints after an install names what it has made.
func TestChartNotes(t *testing.T) {
	testneeds.Slow(t)
	seen()
	text, err := helm.Run(t.Context(), `{fullnameOverride: finder}`, "install", "a", chartDir, "--dry-run=client", "--namespace", "b", "--values", "testdata/key.yaml", "--values", "-")
	if err != nil {
		t.Fatal(err)
	}
	_, notes, _ := strings.Cut(text, "NOTES:")
	c := commands{anywhere: "kubectl -n b exec ds/finder -- dupip "}
	found := regexp.MustCompile(`(?m)^  (kubectl .* dupip .*?) +#`).FindAllStringSubmatch(notes, -1)
	if len(found) != 3 {
		t.Errorf("the commands are %q in\n%s", found, notes)
	}
	for _, m := range found {
		c.check(t, "the notes", m[1])
	}
}
