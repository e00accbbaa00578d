package main

import (
	"reflect"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// tidy makes all texts of the document that p points to fit for a terminal. Other nodes
// and whoever names pods and devices have a say in them.
func tidy(p any) { tidyValue(reflect.ValueOf(p).Elem()) }

func tidyValue(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(printable(v.String()))
	case reflect.Pointer:
		if !v.IsNil() {
			tidyValue(v.Elem())
		}
	case reflect.Slice:
		for n := range v.Len() {
			tidyValue(v.Index(n))
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return
		}
		for _, field := range v.Fields() {
			tidyValue(field)
		}
	case reflect.Map:
		// The documents' maps are of figures by word.
		for key, value := range v.Seq2() {
			if name := printable(key.String()); name != key.String() {
				v.SetMapIndex(key, reflect.Value{})
				v.SetMapIndex(reflect.ValueOf(name), value)
			}
		}
	}
}

// printable replaces what a terminal would obey.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, s)
}
