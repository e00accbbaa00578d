package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/document"
)

// What kubectl's -o takes selects the same of a document.
func TestPaths(t *testing.T) {
	doc := document.Bindings{Bindings: []document.Binding{holder("n1", "web-0", "10.0.0.1", time.Hour), holder("n2", "web-\x1b[31m", "10.0.0.2", time.Hour)}}
	doc.Bindings[0].Ifindex = 1234567
	doc.Bindings[1].Pod = nil
	for format, want := range map[Format]string{
		"jsonpath={.bindings[*].ip}":                                 "10.0.0.1 10.0.0.2",
		"jsonpath=bindings[0].ifindex":                               "1234567",
		`jsonpath={range .bindings[*]}{.node}{"\t"}{.ip}{"\n"}{end}`: "n1\t10.0.0.1\nn2\t10.0.0.2\n",
		`jsonpath={.bindings[?(@.node=="n2")].ip}`:                   "10.0.0.2",
		"jsonpath={.bindings[1].interface}":                          "vethweb-?[31m", // as a terminal gets it
		"jsonpath={.nothing}":                                        "",
		"custom-columns=IP:.ip,POD:.pod.name,Index:{.ifindex}":       "IP        POD     Index\n10.0.0.1  web-0   1234567\n10.0.0.2  <none>  7\n",
		"custom-columns=Both:{.ip}{.node},Pod:.pod":                  "Both         Pod\n10.0.0.1,n1  {\"name\":\"web-0\",\"namespace\":\"shop\",\"uid\":\"u-web-0\"}\n10.0.0.2,n2  <none>\n",
		"custom-columns=N:.node":                                     "N\nn1\nn2\n",
	} {
		p, out := printer(0)
		p.List = "bindings"
		if err := Show(p, format, doc, (*Printer).Bindings); err != nil || out.String() != want {
			t.Errorf("-o %s: %v\n%q, want\n%q", format, err, out, want)
		}
		if err := format.Check(nil); err != nil {
			t.Error(err)
		}
	}
	for format, want := range map[Format]string{
		"jsonpath=":                   "must be",
		"jsonpath={.bindings[}":       "unterminated array; a path is such as {.conflicts[*].ip}",
		"custom-columns=IP":           "must be custom-columns=HEADER:PATH",
		"custom-columns=IP:.ip,NODE:": "must be custom-columns=HEADER:PATH",
		"go-template={{.}}":           `must be table or json`,
		"name":                        "-o name is for lists",
	} {
		if err := format.Check([]string{"table", "json"}); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("-o %s: %v, want %q", format, err, want)
		}
	}
	for _, path := range []Format{"jsonpath={range .nothing[]}{range}", "custom-columns=A:{range .nothing[]}{range}"} {
		p, out := printer(0)
		p.List = "bindings"
		if err := Show(p, path, doc, (*Printer).Bindings); err == nil || !strings.HasPrefix(err.Error(), "-o "+string(path)+": no such path can be followed") || out.Len() > 0 {
			t.Errorf("-o %s: %v %q", path, err, out)
		}
	}
	p, _ := printer(0)
	if err := Show(p, "jsonpath={.bindings[7].ip}", doc, (*Printer).Bindings); err == nil || !strings.HasPrefix(err.Error(), "-o jsonpath={.bindings[7].ip}: ") || !strings.HasSuffix(err.Error(), "; -o json shows what there is") {
		t.Errorf("of an element that is not there: %v", err)
	}
}
