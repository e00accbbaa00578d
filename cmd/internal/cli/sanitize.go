package cli

import (
	"fmt"
	"reflect"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/dupip/dupip/detector"
)

// Sanitize replaces what a terminal would obey in all texts of the document that p points to. Some
// of them come from other nodes, pods and devices.
func Sanitize(p any) { sanitizeValue(reflect.ValueOf(p).Elem()) }

func sanitizeValue(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(detector.Printable(v.String()))
	case reflect.Pointer:
		if !v.IsNil() {
			sanitizeValue(v.Elem())
		}
	case reflect.Slice:
		for n := range v.Len() {
			sanitizeValue(v.Index(n))
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return
		}
		for _, field := range v.Fields() {
			sanitizeValue(field)
		}
	case reflect.Map:
		// The maps of documents have names as keys and numbers as values.
		for key, value := range v.Seq2() {
			if name := detector.Printable(key.String()); name != key.String() {
				v.SetMapIndex(key, reflect.Value{})
				v.SetMapIndex(reflect.ValueOf(name), value)
			}
		}
	}
}

// escape replaces what a terminal would obey and JSON allows within strings: control characters
// from DEL on, and characters that change the direction of writing. The document, JSON or YAML, means the same.
func escape(f Format, document []byte) []byte {
	out := make([]byte, 0, len(document))
	for _, r := range string(document) {
		if r == '\n' || unicode.IsPrint(r) {
			out = utf8.AppendRune(out, r)
			continue
		}
		if f == YAML && r > 0xffff { // which knows no surrogates
			out = fmt.Appendf(out, "\\U%08x", r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			out = fmt.Appendf(out, "\\u%04x", unit)
		}
	}
	return out
}
