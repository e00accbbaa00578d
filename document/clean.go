package document

import (
	"net/netip"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dupip/dupip/detector"
)

// The longest texts in bytes: MaxName, as the longest names of Kubernetes; where a field has the tag text:"sentence", maxSentence.
const (
	MaxName     = 253
	maxSentence = 512
)

// Clean makes a document of somebody else fit for people, logs and labels: it shortens all texts and replaces what a terminal would
// obey, as [Text] does, and moves all times by shift, but not beyond latest if that is not zero, and into its zone. What no clock that
// was set shows is no time. p is a pointer.
func Clean(p any, shift time.Duration, latest time.Time) {
	walk(reflect.ValueOf(p).Elem(), "", func(s, tag string) string {
		if tag == "sentence" {
			return Text(s, maxSentence)
		}
		return Text(s, MaxName)
	}, func(t time.Time) time.Time {
		if t = t.Add(shift); t.Year() < 2000 || t.Year() > 9999 {
			return time.Time{}
		}
		switch {
		case latest.IsZero():
			return t
		case t.After(latest):
			return latest
		}
		return t.In(latest.Location())
	})
}

// Sanitize replaces in all texts of a document what a terminal would obey, but for the ends of the lines of a command. p is a pointer.
func Sanitize(p any) {
	walk(reflect.ValueOf(p).Elem(), "", func(s, tag string) string {
		if tag != "command" {
			return detector.Printable(s)
		}
		lines := strings.Split(s, "\n")
		for n := range lines {
			lines[n] = detector.Printable(lines[n])
		}
		return strings.Join(lines, "\n")
	}, nil)
}

// shorten cuts all texts of a document but those that identify: these have the tag text:"id". p is a pointer.
func shorten(p any, longest int) {
	walk(reflect.ValueOf(p).Elem(), "", func(s, tag string) string {
		if tag == "id" {
			return s
		}
		return Text(s, longest)
	}, nil)
}

// walk changes all texts, each with the tag of its field, also the zones of addresses, and all times that are not zero.
func walk(v reflect.Value, tag string, text func(s, tag string) string, moment func(time.Time) time.Time) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text(v.String(), tag))
	case reflect.Pointer:
		switch p, isPod := v.Interface().(*Pod); {
		case v.IsNil():
		case isPod && (p.Name == "" || (p.Namespace == "") != isEngine(p.Engine)): // only another node may say so
			v.SetZero()
		default:
			walk(v.Elem(), tag, text, moment)
		}
	case reflect.Slice:
		for n := range v.Len() {
			if v.Index(n).Kind() == reflect.Uint8 {
				return
			}
			walk(v.Index(n), tag, text, moment)
		}
	case reflect.Struct:
		switch p := v.Addr().Interface().(type) {
		case *time.Time:
			if moment != nil && !p.IsZero() {
				*p = moment(*p)
			}
			return
		case *netip.Addr:
			if zone := p.Zone(); zone != "" { // any text that another node sends
				*p = p.WithZone(text(zone, tag))
			}
			return
		}
		for field, value := range v.Fields() {
			if !field.IsExported() {
				continue
			}
			tag := tag
			if own := field.Tag.Get("text"); own != "" {
				tag = own
			}
			walk(value, tag, text, moment)
		}
	case reflect.Map:
		// The maps of documents have names as keys and numbers as values.
		for key, value := range v.Seq2() {
			if name := text(key.String(), tag); name != key.String() {
				v.SetMapIndex(key, reflect.Value{})
				v.SetMapIndex(reflect.ValueOf(name).Convert(key.Type()), value)
			}
		}
	}
}

// Text makes a text of a pod, a runtime, a device or another node fit for people, logs and labels: [detector.Printable], and of at most
// that many bytes.
func Text(s string, most int) string {
	const cut = "…"
	if s = detector.Printable(s); len(s) <= most {
		return s
	}
	end := most - len(cut)
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + cut
}
