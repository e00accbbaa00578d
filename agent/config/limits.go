package config

import "cmp"

// Limits bound what the agent keeps and sends.
type Limits struct {
	// Bindings is the size of the table, for the node.
	Bindings int
	// BindingsPerInterface is the share of one interface in it.
	BindingsPerInterface int
	// History is how many resolved conflicts are remembered.
	History int
	// VerifyPerSecond is how many solicitations a second may verify suspicions, for the node.
	VerifyPerSecond int
	// RefreshPerSecond is how many may look after silent addresses.
	RefreshPerSecond int
}

// limit describes one key of the section.
type limit struct {
	key                 string
	field               func(*Limits) *int
	otherwise, min, max int
}

var limits = []limit{
	{"bindings", func(l *Limits) *int { return &l.Bindings }, 65_536, 1, 1 << 20},
	{"bindingsPerInterface", func(l *Limits) *int { return &l.BindingsPerInterface }, 256, 1, 65_536},
	{"history", func(l *Limits) *int { return &l.History }, 1_000, 1, 10_000},
	{"verifyPerSecond", func(l *Limits) *int { return &l.VerifyPerSecond }, 500, 1, 10_000},
	{"refreshPerSecond", func(l *Limits) *int { return &l.RefreshPerSecond }, 100, 1, 10_000},
}

// DefaultLimits returns the limits of an agent without a file.
func DefaultLimits() Limits { return Limits{}.withDefaults() }

func (l Limits) withDefaults() Limits {
	for _, limit := range limits {
		field := limit.field(&l)
		*field = cmp.Or(*field, limit.otherwise)
	}
	return l
}
