package page

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/agent/report/collect"
	"github.com/dupip/dupip/cmd/internal/cli"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/merge"
	"github.com/dupip/dupip/document/say"
)

// mark begins each hostile name. No text of the program has it.
const mark = "zqx"

// harmless is what may follow the mark in a command.
var harmless = regexp.MustCompile(`^[a-zA-Z0-9./:_-]*$`)

// member answers all queries.
type member struct {
	cluster.Member
	answer []byte
}

func (m member) Query(_ context.Context, _ cluster.Query, answer func(cluster.Member, []byte) error) ([]cluster.Member, error) {
	return nil, answer(m.Member, m.answer)
}

// told is an answer of n2 about a conflict with n1, with hostile names for "@".
func told(f *testing.F) document.Answer {
	f.Helper()
	ip := netip.MustParseAddr("10.0.0.7")
	one, other := binding("n1", "web", "10.0.0.7"), binding("n2", "@", "10.0.0.7")
	other.Interface, other.Netns, other.Pod.Namespace, other.Pod.Sandbox, other.Given = "@", "@", "@", "@", detector.GivenNo
	other.Facts = &document.Facts{
		Behind: document.BehindForgotten, CNINetwork: "@", NetnsPath: "/run/netns/@", NetnsInode: 7, Process: &document.Process{PID: 7, Command: "@"},
		Machine: &document.Machine{Device: "@", Prefix: netip.MustParsePrefix("10.0.0.7/24")},
	}
	c := conflict("10.0.0.7", one, other)
	c.Judgement = nil
	c.Routes = []document.Route{{Node: "n2", To: document.ToNode, ToNode: "@", Device: "@"}}
	c.Books = []document.Book{{Node: "n2", Kind: "@", CNINetwork: "@", Error: "@", Range: "@"}}
	a := document.Answer{
		Conflicts: []document.Conflict{c}, Bindings: []document.Binding{other}, Books: c.Books, Routes: c.Routes, Unchecked: []string{"@"}, Checked: []string{"@"}, NoBook: "@",
		Absences: []document.Absence{{Node: "n1", BootID: "b-n1", From: seen, Until: seen.Add(time.Minute)}},
		Status:   &document.Status{Version: "@", Interfaces: []document.InterfaceStatus{{Name: "@", State: "@"}}},
		Stories: []document.Story{{
			Network: "default", IP: ip, Bindings: c.Holders, Former: []document.Binding{other}, Conflict: &c, Verdict: "@", Notes: []document.Note{{At: seen, Kind: "@", Text: "@", Holder: &other.Holder}},
		}},
	}
	for _, kind := range document.FindingKinds {
		a.Findings = append(a.Findings, document.Finding{
			Kind: kind, IP: ip, Holder: other.Holder, CNINetwork: "@", Book: "host-local", Store: "/var/lib/cni/networks/@", Since: seen, Sandbox: "@", ReservedFor: "@", ReservedPod: other.Pod, HeldBy: "@", Through: []string{"@"}, End: "nowhere",
		})
	}
	return a
}

// FuzzAnswer: whatever a node with the key answers, and whatever its pods are called, nothing that is printed has characters that a
// terminal obeys, no command has a name that a shell would take for more than a name, and the page has no name as HTML.
func FuzzAnswer(f *testing.F) {
	whole := told(f)
	names := []string{"web-1", ";reboot", "", "'$(reboot)\n", "\u202e\x1b[2J", "<img src=x>", "\"'>"}
	for n, a := range []document.Answer{
		whole, {Conflicts: whole.Conflicts}, {Bindings: whole.Bindings}, {Stories: whole.Stories}, {Findings: whole.Findings, Checked: whole.Checked}, {Status: whole.Status},
	} {
		text, err := json.Marshal(a)
		if err != nil {
			f.Fatal(err)
		}
		if n > 0 {
			names = []string{";reboot"} // the fuzzer begins with all that is here
		}
		for _, name := range names {
			f.Add(text, name)
		}
	}
	rules := merge.Rules{ClusterWide: func(network string) bool { return network == "default" }, Shared: func(netip.Addr) bool { return false }}
	var made documents
	handler := New(&made, "dupip") // to read the template takes longer than all else
	f.Fuzz(func(t *testing.T, text []byte, name string) {
		if len(name) > 100 || len(text) > 1<<15 {
			return // a name that is cut, and what takes long
		}
		name = mark + name + mark       // no tag of the page ends it
		quoted, _ := json.Marshal(name) //nolint:errchkjson // it is a text
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		w.Write(bytes.ReplaceAll(text, []byte("@"), quoted[1:len(quoted)-1])) //nolint:errcheck // it is memory
		w.Close()
		other := member{cluster.Member{Name: document.Text(strings.ReplaceAll(name, "/", ""), 253), Boot: "b-n2", State: cluster.Alive, Address: "10.9.9.2:7951"}, packed.Bytes()}
		self := cluster.Member{Name: "n1", Boot: "b-n1", State: cluster.Alive, Address: "10.9.9.1:7951"}
		q := document.Query{IP: netip.MustParseAddr("10.0.0.7"), All: true, Cluster: true}
		asked := collect.Collection{Self: self, Rules: rules}
		own := conflict("10.0.0.7", binding("n1", "web", "10.0.0.7"), binding(other.Name, "copy", "10.0.0.7"))
		own.Holders[1].BootID = "b-n2"
		own.Judgement = nil
		asked.Add(document.Answer{At: time.Now(), Conflicts: []document.Conflict{own}, Bindings: own.Holders[:1], Stories: []document.Story{{Network: "default", IP: q.IP, Bindings: own.Holders, Conflict: &own}}})
		if err := asked.Ask(t.Context(), other, []cluster.Member{self, other.Member}, q, cluster.QueryConflicts); err != nil {
			t.Fatal(err)
		}
		made = documents{
			conflicts: func() document.Conflicts { return asked.Conflicts(q) },
			explain:   func() document.Explanation { return asked.Explanation(q) },
			audit:     func() document.Audit { return asked.Audit(q) },
		}
		conflicts, story, audit := made.conflicts(), made.explain(), made.audit()
		steps := stepsOf(t, conflicts, story, audit)
		for _, s := range steps {
			checkCommand(t, s.Command)
			checkCommand(t, s.File)
		}
		for _, format := range []cli.Format{cli.Table, cli.Wide, cli.JSON, cli.YAML} {
			var out bytes.Buffer
			p := &cli.Printer{Out: &out, Width: 40 + len(text)%100}
			show(t, p, format, conflicts, (*cli.Printer).Conflicts)
			if format == cli.JSON || format == cli.YAML {
				checkText(t, string(format), out.String())
				continue // which are the same for all documents
			}
			show(t, p, format, story, (*cli.Printer).Explanation)
			show(t, p, format, audit, (*cli.Printer).Audit)
			show(t, p, format, asked.Bindings(q), (*cli.Printer).Bindings)
			if status, err := asked.Status(other.Name); err == nil {
				show(t, p, format, status, (*cli.Printer).Status)
			}
			checkText(t, string(format), out.String())
		}
		for _, target := range []string{"/?all=1", "/explain?ip=10.0.0.7", "/audit"} {
			page := pageOf(handler, target).Body.String()
			checkText(t, target, page)
			if shown := detector.Printable(name); strings.ContainsAny(shown, `<>"'`) && strings.Contains(page, shown) {
				t.Errorf("%s has a name as HTML:\n%s", target, page)
			}
			if strings.Contains(page, "the page cannot be made") {
				t.Errorf("%s:\n%s", target, page)
			}
		}
	})
}

func pageOf(handler http.Handler, target string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost:8080"+target, nil))
	return w
}

func show[T any](t *testing.T, p *cli.Printer, format cli.Format, doc T, text func(*cli.Printer, T)) {
	t.Helper()
	if err := cli.Show(p, format, doc, text); err != nil {
		t.Error(err)
	}
}

// stepsOf are all steps that any view of the documents has.
func stepsOf(t *testing.T, conflicts document.Conflicts, story document.Explanation, audit document.Audit) (steps []document.Step) {
	t.Helper()
	for _, e := range append(append(say.Entries(conflicts), say.Many(conflicts)...), say.Repairs(audit)...) {
		steps = append(steps, e.Steps...)
	}
	for _, c := range conflicts.Conflicts {
		if c.Judgement != nil {
			steps = append(steps, c.Judgement.Steps...)
		}
	}
	for _, s := range story.Stories {
		if s.Conflict != nil && s.Conflict.Judgement != nil {
			steps = append(steps, s.Conflict.Judgement.Steps...)
		}
	}
	for _, f := range audit.Findings {
		_, of := say.Finding(f)
		steps = append(steps, of...)
	}
	return steps
}

// checkCommand fails if a command has a hostile name that a shell could take for more.
func checkCommand(t *testing.T, command string) {
	t.Helper()
	checkText(t, "a command", command)
	for part := range strings.SplitSeq(command, mark) {
		if part == command || strings.HasPrefix(command, part) {
			continue
		}
		if end := strings.IndexAny(part, " '\"\n"); end >= 0 {
			part = part[:end]
		}
		if !harmless.MatchString(part) {
			t.Errorf("a command has the name %q: %s", mark+part, command)
		}
	}
}

func checkText(t *testing.T, what, text string) {
	t.Helper()
	if text = strings.ReplaceAll(text, "\n", ""); detector.Printable(text) != text {
		t.Errorf("%s has characters that a terminal obeys: %q", what, text)
	}
}

// FuzzRequest: whatever the parameters of the page are, it is made, or refused with a reason, and has none of them as HTML.
func FuzzRequest(f *testing.F) {
	for _, query := range []string{"q=x", "all=1&from=100", "since=12h", "since=all", "ip=10.0.0.7", "ip=fe80::1%25%3Cimg", "from=-1", "from=99999999999999999999", "q=%3Cimg&q=2", "%3Cimg=1", "q=%1b[2J%e2%80%ae"} {
		f.Add(query)
	}
	handler := New(hostile, "dupip")
	f.Fuzz(func(t *testing.T, query string) {
		values, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		for _, path := range []string{"/", "/explain", "/nodes", "/audit"} {
			answer := pageOf(handler, path+"?"+values.Encode())
			page := answer.Body.String()
			if strings.Contains(page, "<img") || !strings.Contains(page, "</html>") {
				t.Errorf("%s:\n%s", path, page)
			}
			checkText(t, path, page)
			r, err := parse(cmp.Or(path[1:], "conflicts"), values)
			if refused := answer.Code == http.StatusBadRequest; refused != (err != nil) {
				t.Errorf("%s: %d, %v", path, answer.Code, err)
			}
			if err == nil && (r.From < 0 || r.Since < 0 || len(r.Text) > maxText) {
				t.Errorf("%s: %+v", path, r)
			}
		}
	})
}
