package say

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/dupip/dupip/document"
)

// hostile are names that a shell must not see. Each has "reb", which no command has otherwise.
var hostile = []string{
	"x;reboot", "$(reboot)", "`reboot`", "-reboot", "--all=reboot", "x reboot", "x\nreboot", "'reboot'", `"reboot"`, "x|reboot", "x&reboot", "../reboot;", "a>reboot",
	"*reboot", "rebööt", "~reboot'", "{reboot,x}",
	"/run/netns/x;reboot", "x;reboot/" + boot("a"), "n1/" + boot("a") + ";reboot", strings.Repeat("a", 40) + "$(reboot)",
}

// texts are all texts of a document but the codes of a judgement.
func texts(v reflect.Value) (list []reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		return []reflect.Value{v}
	case reflect.Pointer:
		if !v.IsNil() {
			return texts(v.Elem())
		}
	case reflect.Slice:
		for n := range v.Len() {
			list = append(list, texts(v.Index(n))...)
		}
	case reflect.Struct:
		for field, value := range v.Fields() {
			if field.IsExported() && field.Name != "Verdict" && field.Name != "Reason" && field.Name != "Cause" {
				list = append(list, texts(value)...)
			}
		}
	}
	return list
}

// Pods, nodes, devices and processes choose their names, and people paste commands into a shell.
func TestNoHostileNameInACommand(t *testing.T) {
	documents, commands := 0, 0
	check := func(name string, doc any, steps func() []document.Step) {
		for _, text := range texts(reflect.ValueOf(doc)) {
			was := text.String()
			for _, name := range hostile {
				text.SetString(name)
				documents++
				for _, s := range steps() {
					if commands++; strings.Contains(s.Command, "reb") {
						t.Errorf("%s, %q for %q: %s", name, text, was, s.Command)
					}
				}
			}
			text.SetString(was)
		}
		t.Logf("%s: %d documents, %d steps", name, documents, commands)
	}
	for _, s := range situations() {
		check(s.name, &s.c, func() []document.Step { Fill(&s.c, at); return s.c.Judgement.Steps })
	}
	for _, kind := range document.FindingKinds {
		f := finding(kind)
		check(kind, &f, func() []document.Step { _, steps := Finding(f); return steps })
	}
}

// A holder without a command: because of an unsafe name, or because nobody knows enough.
func TestWhyThereIsNoCommand(t *testing.T) {
	for name, change := range map[string]func(*document.Binding){
		"too little is known": func(*document.Binding) {},
		"namespace":           func(b *document.Binding) { b.Pod.Namespace = "x;reboot" },
		"name":                func(b *document.Binding) { b.Pod.Name = "x;reboot" },
		"UID":                 func(b *document.Binding) { b.Pod.UID = "x;reboot" },
		"sandbox":             func(b *document.Binding) { b.Pod.Sandbox = "x;reboot" },
		"interface":           func(b *document.Binding) { b.Interface = "x;reboot" },
		"netns":               func(b *document.Binding) { b.Facts = &document.Facts{NetnsPath: "/x;reboot", NetnsInode: 1} },
	} {
		c := judged(document.CauseByHand, certain, "0 remove not-given", document.Binding{Holder: document.Holder{Pod: &document.Pod{Namespace: "shop", Name: "web"}, Ifindex: 1}})
		change(&c.Holders[0])
		Fill(&c, at)
		if steps := c.Judgement.Steps; len(steps) != 1 || strings.Contains(steps[0].Text, "not safe for a shell") == (name == "too little is known") {
			t.Errorf("%s: %+v", name, steps)
		}
	}
}

func TestNoHostileAddressInACommand(t *testing.T) {
	for _, address := range []netip.Addr{{}, netip.MustParseAddr("fe80::1%$(reboot)"), netip.MustParseAddr("::ffff:10.0.0.5")} {
		f := finding(document.Unreserved)
		f.IP = address
		_, steps := Finding(f)
		for _, s := range situations() {
			s.c.IP = address
			Fill(&s.c, at)
			steps = append(steps, s.c.Judgement.Steps...)
		}
		for _, s := range steps {
			if strings.Contains(s.Command, "reboot") || strings.Contains(s.Command, "ffff") || strings.Contains(s.Command, "invalid") {
				t.Errorf("%v: %s", address, s.Command)
			}
		}
	}
}
