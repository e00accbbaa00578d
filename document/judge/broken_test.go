package judge

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// wrong returns a judge that gets a changed conflict.
func wrong(change func(*document.Conflict)) judges {
	return func(c document.Conflict, ctx Context) *document.Judgement {
		c.Holders, c.Books = slices.Clone(c.Holders), slices.Clone(c.Books)
		for n := range c.Holders {
			if f := c.Holders[n].Facts; f != nil {
				c.Holders[n].Facts = new(*f)
			}
		}
		change(&c)
		return Of(c, ctx)
	}
}

// rash returns a judge that decides what the facts leave open, by a choice among the live holders that are left.
func rash(reason string, goes func(c document.Conflict, open []int) int) judges {
	return func(c document.Conflict, ctx Context) *document.Judgement {
		j := Of(c, ctx)
		var open []int
		for _, v := range j.Holders {
			if v.Verdict == document.Open {
				open = append(open, v.Holder)
			}
		}
		if len(open) < 2 {
			return j
		}
		chosen := goes(c, open)
		for n := range j.Holders {
			if v := &j.Holders[n]; v.Holder == chosen {
				v.Verdict, v.Reason = document.Remove, reason
			}
		}
		return j
	}
}

func newest(c document.Conflict, open []int) int {
	return slices.MaxFunc(open, func(x, y int) int {
		a, b := c.Holders[x], c.Holders[y]
		return cmp.Or(a.FirstSeen.Compare(b.FirstSeen), cmp.Compare(a.NetnsCookie, b.NetnsCookie))
	})
}

func first(_ document.Conflict, open []int) int { return slices.Min(open) }

// TestBrokenLaws breaks each law on purpose: it is found.
func TestBrokenLaws(t *testing.T) {
	breaks := map[string]judges{
		"a live holder that was given the address": wrong(func(c *document.Conflict) {
			for n := range c.Holders {
				c.Holders[n].Given = max(c.Holders[n].Given, detector.GivenYes)
			}
		}),
		"a pod goes for a node's address": wrong(func(c *document.Conflict) {
			for n := range c.Holders {
				if f := c.Holders[n].Facts; f.Machine != nil {
					f.Machine = &document.Machine{Device: f.Machine.Device, Prefix: f.Machine.Prefix}
				}
			}
		}),
		"what nothing is alive behind": wrong(func(c *document.Conflict) {
			for n := range c.Holders {
				c.Holders[n].Facts.Behind = cmp.Or(c.Holders[n].Facts.Behind, document.BehindRunning)
				if c.Holders[n].Facts.Behind == document.BehindForgotten {
					c.Holders[n].Facts.Behind = document.BehindRunning
				}
			}
		}),
		"the successor of what was removed": rash(document.ReasonNotReserved, newest),
		"namesakes, clones and unreachable": wrong(func(c *document.Conflict) {
			for n := range c.Holders {
				c.Holders[n].Unreachable = false
			}
		}),
		"fewer facts give the same order": rash(document.ReasonNewer, newest),
		"the order of the holders":        rash(document.ReasonNewer, first),
		"somebody stays": wrong(func(c *document.Conflict) {
			for n := range c.Holders {
				c.Holders[n].Facts.Behind = document.BehindRunning
			}
		}),
		"age alone decides nothing": rash(document.ReasonNewer, newest),
		"what only other nodes say": wrong(func(c *document.Conflict) {
			for n := range c.Holders {
				if c.Holders[n].Facts.Behind == "" {
					c.Holders[n].Facts.Behind = document.BehindRunning
				}
			}
		}),
		"what decides by another node's word": func(c document.Conflict, ctx Context) *document.Judgement {
			j := Of(c, ctx)
			for n := range j.Holders {
				j.Holders[n].By = ""
			}
			return j
		},
		"another node's book": wrong(func(c *document.Conflict) {
			for n := range c.Books {
				c.Books[n].Node, c.Books[n].BootID = c.Holders[0].Node, c.Holders[0].BootID
			}
		}),
	}
	for _, l := range laws {
		var of judges
		for begin, broken := range breaks {
			if strings.HasPrefix(l.name, begin) {
				of = broken
			}
		}
		if of == nil {
			t.Errorf("nothing breaks: %s", l.name)
			continue
		}
		of = guarded(of)
		if name, _, _ := broken(of, []law{l}, combinations); name == "" {
			t.Errorf("not found broken: %s", l.name)
		}
	}
}

// guarded gives a judge the facts that each holder of a generated conflict has: a law may have taken one away.
func guarded(of judges) judges {
	return func(c document.Conflict, ctx Context) *document.Judgement {
		c.Holders = slices.Clone(c.Holders)
		for n := range c.Holders {
			if c.Holders[n].Facts == nil {
				c.Holders[n].Facts = new(document.Facts)
			}
		}
		return of(c, ctx)
	}
}
