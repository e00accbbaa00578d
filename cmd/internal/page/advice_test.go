package page

import (
	"html"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// What to do is in sentences and commands of their own. All are whole, however long, and no text of a document makes a command.
func TestAdvice(t *testing.T) {
	long := "kubectl delete pod " + strings.Repeat("a-long-name ", 20) + "end"
	source := documents{conflicts: func() document.Conflicts {
		return document.Conflicts{Conflicts: []document.Conflict{{
			Network: "default", IP: netip.MustParseAddr("10.0.0.1"), State: detector.Confirmed,
			Judgement: &document.Judgement{Text: "Because\n  rm -rf /\n", Steps: []document.Step{
				{Text: "Remove one", Command: long},
				{If: "If not", Text: "Read \"dupip nodes\"", Node: "n2", Cuts: "the web"},
				{Text: "Add this", Command: "networks:\n  - {name: \"a\x1b\"}\n", File: "the configuration"},
			}},
		}}}
	}}
	w := httptest.NewRecorder()
	New(source, "kubectl dupip").ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost/", nil))
	_, advice, _ := strings.Cut(w.Body.String(), "What to do</h2>")
	var got [][2]string
	for _, match := range regexp.MustCompile(`(?s)<(p|code)\b[^>]*>(.*?)</`).FindAllStringSubmatch(strings.SplitN(advice, "</section>", 2)[0], -1) {
		got = append(got, [2]string{match[1], html.UnescapeString(match[2])})
	}
	want := [][2]string{
		{"p", "10.0.0.1: Because?  rm -rf /?"},
		{"p", "Remove one:"},
		{"code", long},
		{"p", "If not: Read \"kubectl dupip nodes\", on node n2 (this cuts the web)."},
		{"p", "Add this:"},
		{"code", "networks:\n  - {name: \"a?\"}"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
