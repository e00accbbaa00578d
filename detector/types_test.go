package detector

import (
	"reflect"
	"testing"
)

// Texts has every text of a holder, so that a reader cleans all that another node sends.
func TestTexts(t *testing.T) {
	var h Holder
	for _, text := range h.Texts() {
		*text = "cleaned"
	}
	var walk func(v reflect.Value, name string)
	walk = func(v reflect.Value, name string) {
		switch v.Kind() {
		case reflect.String:
			if name != "Node" && v.String() != "cleaned" {
				t.Errorf("%s is not cleaned", name)
			}
		case reflect.Struct:
			for field, value := range v.Fields() {
				if field.IsExported() {
					walk(value, field.Name)
				}
			}
		}
	}
	walk(reflect.ValueOf(h), "")
}
