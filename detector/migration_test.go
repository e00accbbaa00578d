package detector

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var vm7 = VM{UID: "7a", Name: "db"}

// runs makes a holder a pod of a virtual machine in a namespace; an empty namespace takes its name away.
func (a *actor) runs(namespace string, vm VM) {
	a.pod, a.vm = Pod{Namespace: namespace, Name: a.name}, vm
	if namespace == "" {
		a.pod = Pod{}
	}
}

// What two holders of one address are, and when they are confirmed.
func TestMigrations(t *testing.T) {
	const both = `0s a announces
		100s b@n2 announces`
	for name, tt := range map[string]struct {
		source, target string // the namespaces
		of             VM     // the target's
		script, want   string
		verdict        string
	}{
		"the source goes": {
			source: "shop", target: "shop", of: vm7,
			script: both + "\n104s a loses",
			want: `1m40s suspected a b@n2
				1m44s faded a b@n2`,
		},
		"shown meanwhile": {
			source: "shop", target: "shop", of: vm7, script: both, want: `1m40s suspected a b@n2`,
			verdict: "two holders, a live migration of virtual machine db: shop/b@n2 on node n2 takes the address over from shop/a: suspected, not confirmed",
		},
		"both stay": {
			source: "shop", target: "shop", of: vm7, script: both + "\n170s a answers",
			want: `1m40s suspected a b@n2
				2m41s confirmed a b@n2`,
		},
		"the source dies when the time is nearly over": {
			source: "shop", target: "shop", of: vm7, script: both + "\n159.9s a drops\n170s b@n2 answers",
			want: `1m40s suspected a b@n2
				2m41.02s faded a b@n2`,
		},
		"another namespace": {
			source: "shop", target: "bank", of: vm7, script: both,
			want: `1m40s suspected a b@n2
				1m41s confirmed a b@n2`,
		},
		"another virtual machine": {
			source: "shop", target: "shop", of: VM{"7b", "db"}, script: both,
			want: `1m40s suspected a b@n2
				1m41s confirmed a b@n2`,
		},
		"no virtual machine": {
			source: "shop", target: "shop", script: both,
			want: `1m40s suspected a b@n2
				1m41s confirmed a b@n2`,
		},
		"one node": {
			source: "shop", target: "shop", of: vm7,
			script: `0s a announces
				100s b announces`,
			want: `1m40s suspected a b
				1m41s confirmed a b`,
		},
		"three holders": {
			source: "shop", target: "shop", of: vm7,
			script: both + `
				100s c@n3 announces`,
			want: `1m40s suspected a b@n2
				1m40s changed a b@n2 c@n3
				1m41s confirmed a b@n2 c@n3`,
		},
		"a third one comes later": {
			source: "shop", target: "shop", of: vm7,
			script: both + `
				120s c@n3 announces`,
			want: `1m40s suspected a b@n2
				2m0s changed a b@n2 c@n3
				2m1s confirmed a b@n2 c@n3`,
		},
		"a drill": {
			source: "shop", target: "shop", of: vm7,
			script: `0s a announces 192.0.2.7
				100s b@n2 announces 192.0.2.7`,
			want: `1m40s suspected a b@n2
				1m41s confirmed a b@n2`,
		},
		"the address of the node": {
			source: "shop", target: "shop", of: vm7,
			script: `0s a announces
				100s host@n2 announces`,
			want: `1m40s suspected a host@n2
				1m41s confirmed a host@n2`,
		},
		"without a name the target has ten seconds": {
			source: "shop", script: both + "\n120s a answers",
			want: `1m40s suspected a b@n2
				1m51s confirmed a b@n2`,
		},
		"again in the same minute, and in the next one": {
			source: "shop", target: "shop", of: vm7,
			script: both + `
				104s b@n2 gone
				130s b@n2 announces
				134s b@n2 gone
				170s b@n2 announces`,
			want: `1m40s suspected a b@n2
				1m44s faded a b@n2
				2m10s suspected a b@n2
				2m14s faded a b@n2
				2m50s suspected a b@n2
				2m51s confirmed a b@n2`,
		},
		"again ten minutes later": {
			source: "shop", target: "shop", of: vm7,
			script: both + `
				104s b@n2 gone
				200s a answers
				400s a answers
				600s a answers
				701s b@n2 announces
				730s b@n2 gone`,
			want: `1m40s suspected a b@n2
				1m44s faded a b@n2
				11m41s suspected a b@n2
				12m10s faded a b@n2`,
		},
		"the agent restarts": {
			source: "shop", target: "shop", of: vm7,
			script: both + `
				120s agent restarts
				121s a announces
				121s b@n2 announces
				170s a answers`,
			want: `1m40s suspected a b@n2
				2m41s confirmed a b@n2`,
		},
		"the agent restarts when it was confirmed": {
			source: "shop", target: "bank", of: vm7,
			script: both + `
				120s agent restarts
				121s a announces
				121s b@n2 announces`,
			want: `1m40s suspected a b@n2
				1m41s confirmed a b@n2
				2m2s confirmed a b@n2`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Options{Node: "n1"})
			w.actor("a").runs(tt.source, vm7)
			for _, name := range []string{"b", "b@n2", "c@n3", "host@n2"} {
				if strings.Contains(tt.script, " "+name+" ") {
					w.actor(name).runs(tt.target, tt.of)
				}
			}
			w.play(tt.script, 10*time.Second)
			if diff := cmp.Diff(linesOf(tt.want), w.log()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if tt.verdict != "" && !strings.Contains(w.verdict(), tt.verdict) {
				t.Errorf("verdict %q, want %q", w.verdict(), tt.verdict)
			}
			if migrates, counted := len(w.d.conflicts.migrations), w.d.Counts().Suppressed[suppressedMigration]; tt.target != "" && (migrates == 0) != (counted == 0) {
				t.Errorf("%d virtual machines have migrated, %d suppressed", migrates, counted)
			}
		})
	}
}

// The runtime names the target some time after it has the address.
func TestTargetIsNamedLate(t *testing.T) {
	for name, tt := range map[string]struct {
		of   VM
		want []string
	}{
		"it is the target":     {vm7, []string{"1s suspected a b@n2", "1m2s confirmed a b@n2"}},
		"it is another pod":    {VM{}, []string{"1s suspected a b@n2", "6s confirmed a b@n2"}},
		"of another namespace": {VM{"7b", "db"}, []string{"1s suspected a b@n2", "6s confirmed a b@n2"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Options{Node: "n1"})
			w.actor("a").runs("shop", vm7)
			w.play(`0s a announces
				1s b@n2 announces`, 4*time.Second)
			if want := "perhaps a live migration of virtual machine db: b@n2 on node n2 takes the address over from shop/a; its pod is not known yet"; !strings.Contains(w.verdict(), want) {
				t.Errorf("verdict %q, want %q", w.verdict(), want)
			}
			w.actor("b@n2").runs("shop", tt.of)
			w.play("5s b@n2 announces", time.Minute)
			if diff := cmp.Diff(tt.want, w.log()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// Pods that flood the table with migrations of theirs delay nobody's alarm.
func TestMigrationsAreBounded(t *testing.T) {
	w := newWorld(t, Options{Node: "n1"})
	for n := range maxMigrations {
		w.d.conflicts.migrations.until(machine{"evil", fmt.Sprint(n)}, w.now, w.now)
	}
	w.actor("a").runs("shop", vm7)
	w.actor("b@n2").runs("shop", vm7)
	w.actor("c").runs("shop", VM{"7c", "web"})
	w.play(`0s a announces
		0s c announces 10.0.0.2
		1s b@n2 announces
		1s d@n2 announces 10.0.0.2`, 10*time.Second)
	if diff := cmp.Diff([]string{"1s suspected a b@n2", "1s suspected c d@n2", "2s confirmed a b@n2", "2s confirmed c d@n2"}, w.log()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if n := len(w.d.conflicts.migrations); n != maxMigrations {
		t.Errorf("%d virtual machines, want %d", n, maxMigrations)
	}
	if n := w.d.Counts().Refused[refusedMigrations]; n != 2 {
		t.Errorf("%d migrations refused, want 2", n)
	}
	later := w.now.Add(migrationPause)
	if until, _ := w.d.conflicts.migrations.until(machine{"shop", vm7.UID}, later, later); !until.After(later) || len(w.d.conflicts.migrations) != 1 {
		t.Errorf("ten minutes later: until %v, %d virtual machines", until, len(w.d.conflicts.migrations))
	}
}
