package detector

import (
	"cmp"
	"maps"
	"time"

	"github.com/dupip/dupip/internal/schedule"
)

const (
	// migrationTime is how long the pods of a virtual machine on two nodes may have an address together.
	migrationTime = time.Minute
	// migrationPause is the least time from the beginning of one migration of a virtual machine to that of the next.
	migrationPause = 10 * time.Minute
	// unnamedTime is how long a second holder of a virtual machine's address may have no name: a runtime lists a pod once it has made it, some
	// time after the pod has its address. Another node hears of the name with the next round.
	unnamedTime = 10 * time.Second

	maxMigrations = 256
)

// migrations says when the last live migration of each virtual machine began. A CNI gives the pod at the target the address of the one at
// the source, and takes it off the source seconds later: meanwhile both answer.
//
// Pods choose their labels, so one that copies those of a virtual machine passes for its target. All that it gains is that the conflict is
// confirmed migrationTime later, once in migrationPause.
type migrations map[machine]time.Time

// machine is a virtual machine of a namespace.
type machine struct{ namespace, uid string }

// of returns the virtual machine that two holders of a key have to themselves, if one can be the target of a migration from the other. named
// reports whether it is known that the target runs it, too. The holders are in order of age.
//
// The two are on different nodes: virt-controller forbids the target the node of the source, by pod anti-affinity.
func (migrations) of(key Key, list []*binding) (vm machine, named bool) {
	if len(list) != 2 || key.IsForDrills() {
		return machine{}, false
	}
	from, to := &list[0].holder, &list[1].holder
	vm = machine{from.Pod.Namespace, from.Sandbox.VM.UID}
	named = to.Pod != (Pod{})
	switch {
	case vm.uid == "", from.ID.Node == to.ID.Node, list[0].evidence == Host, list[1].evidence == Host:
		return machine{}, false
	case named && vm != machine{to.Pod.Namespace, to.Sandbox.VM.UID}:
		return machine{}, false
	}
	return vm, named
}

// until returns until when a virtual machine may migrate whose target was seen first at a time, never zero: it may be over. full: there are
// too many migrations for this one.
func (m migrations) until(vm machine, targetSeen, now time.Time) (until time.Time, full bool) {
	began, known := m[vm]
	if !known || now.Sub(began) >= migrationPause {
		if began = targetSeen; now.Sub(began) >= migrationTime {
			return now, false
		}
		maps.DeleteFunc(m, func(_ machine, began time.Time) bool { return now.Sub(began) >= migrationPause })
		if len(m) >= maxMigrations { // which pods can make
			return now, true
		}
		m[vm] = began
	}
	return began.Add(migrationTime), false
}

// migrates reports whether two live holders of an address are not to be confirmed now, because they may be one virtual machine that moves to
// another node. When that time is over, they are verified anew.
func (l *conflicts) migrates(e *entry, list []*binding, now time.Time) bool {
	c := e.conflict
	vm, named := l.migrations.of(e.key, list)
	if vm != (machine{}) && c.confirmedAt.IsZero() {
		until, full := l.migrations.until(vm, c.secondSeen, now)
		if full {
			l.table.counts.Refused[refusedMigrations]++
		}
		if !named {
			until = schedule.Earlier(until, c.secondSeen.Add(unnamedTime))
		}
		if until.After(now) {
			if named && (c.migration == "" || c.unnamed) {
				l.counts.Suppressed[suppressedMigration]++
			}
			text := "a live migration of virtual machine " + cmp.Or(list[0].holder.Sandbox.VM.Name, vm.uid) + ": " +
				list[1].String() + " takes the address over from " + list[0].String()
			if !named {
				text = "perhaps " + text + "; its pod is not known yet"
			}
			if c.migration != text {
				e.record(now, HolderID{}, noteConflict, text)
			}
			c.migration, c.unnamed, c.wake = text, !named, schedule.Earlier(c.wake, until)
			return true
		}
	}
	if c.migration == "" {
		return false
	}
	c.migration, c.round = "", time.Time{}
	for _, b := range list {
		b.check.unpair()
	}
	return true
}
