package peers

import (
	"strings"
	"testing"

	"github.com/dupip/dupip/tests/lab"
)

// A peer that ended before it was told to has missed what there was: that must be said.
func TestEndsByItself(t *testing.T) {
	l := lab.NewT(t)
	n := l.Node("")
	run := func(script string) *process {
		dir, err := scratch(n)
		l.Do(err)
		p, err := start(n, dir, func(string) {}, "/bin/sh", "-c", script)
		l.Do(err)
		return p
	}
	for script, want := range map[string]string{"exit 3": "exit status 3", "exit 0": "without an error"} {
		p := run(script)
		<-p.exited
		if err := p.stop(); err == nil || !strings.Contains(err.Error(), "ended by itself: "+want) {
			t.Errorf("%s: %v", script, err)
		}
	}
	l.Do(run("exec sleep 60").stop())
}
