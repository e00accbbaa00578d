package cli

import (
	"bytes"
	"testing"
	"time"

	"github.com/dupip/dupip/document"
)

// Who has a locale of ASCII gets nothing else, and programs the whole text.
func TestLocale(t *testing.T) {
	pod := holder("node-ä", "a-pod-with-a-name-that-is-longer-than-a-line-of-forty-columns", "10.0.0.1", time.Hour)
	for locale, want := range map[[3]string]bool{
		{"POSIX", "de_DE.UTF-8", "de_DE.UTF-8"}: true,
		{"", "C", "de_DE.UTF-8"}:                true,
		{"", "", "de_DE"}:                       true,
		{"", "", ""}:                            false,
		{"C.UTF-8", "C", "C"}:                   false,
		{"", "", "en_US.utf8"}:                  false,
	} {
		for n, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
			t.Setenv(name, locale[n])
		}
		for _, format := range []Format{Table, JSON, YAML} {
			p, out := printer(40)
			if err := Show(p, format, document.Bindings{Bindings: []document.Binding{pod}}, (*Printer).Bindings); err != nil {
				t.Fatal(err)
			}
			text := out.Bytes()
			isASCII := !bytes.ContainsFunc(text, func(r rune) bool { return r > 0x7e })
			if isASCII != (want && format == Table) || format == Table && want != bytes.Contains(text, []byte("*")) {
				t.Errorf("%v, -o %s: ASCII %t, want %t:\n%s", locale, format, isASCII, want, text)
			}
		}
	}
}

// Each character is one, so that columns stay, and those of our own texts can be read.
func TestASCII(t *testing.T) {
	t.Setenv("LC_ALL", "C")
	var out bytes.Buffer
	if n, err := ForLocale(ForLocale(&out)).Write([]byte("33µs → web…x2 ä")); err != nil || n != 21 || out.String() != "33us > web*x2 ?" {
		t.Errorf("%d %v %q", n, err, out.String())
	}
}
