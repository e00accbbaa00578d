package detector

// The reasons for which a sighting is dropped or, the first three, a binding is evicted.
const (
	refusedInterfaceFull = "interface full" // the interface has MaxPerInterface bindings
	refusedTableFull     = "table full"     // the table has MaxBindings
	refusedKeyFull       = "key full"       // the address has 64 holders
	refusedOld           = "older than the TTL"
	refusedInvalid       = "invalid"        // the sighting has no address, holder or evidence
	refusedNoHolder      = "no holder here" // the holder is remote, and no local one has the address
	refusedUnanswered    = "unanswered"     // the holder is remote and suppressed, because it did not answer
	// refusedMigrations is no sighting: a conflict is not taken for a live migration, because there are 256.
	refusedMigrations = "live migrations"
)

// evictedSource is the reason for which an interface of a binding is evicted: there are more than four.
const evictedSource = "interfaces of one holder"

// The reasons why two holders raise no suspicion.
const (
	suppressedShared    = "shared"    // the key was declared shared, see [Detector.SetShared]
	suppressedForwarded = "forwarded" // all but one of the holders only forward
	// suppressedMigration: a suspicion is raised, and not confirmed for a while.
	suppressedMigration = "migration"
)

// Counts are figures for metrics. Every map has an entry for each of its possible keys, also when
// it is zero.
type Counts struct {
	// Keys counts the addresses with a binding or an open conflict, Bindings the local bindings by
	// evidence, Remote the bindings of holders on other nodes.
	Keys     int
	Bindings map[Evidence]int
	Remote   int
	// Open counts the present suspicions and conflicts, Drills those that are drills. No other count of conflicts or suspicions
	// includes drills.
	Open   map[StateScope]int
	Drills map[State]int
	// History is the number of resolved conflicts that are remembered.
	History int

	// The following only grow. Refused counts the sightings that were dropped, Evicted the bindings and
	// interfaces of one that were removed to make room for others, both by reason.
	Refused map[string]uint64
	Evicted map[string]uint64
	// Suspected counts the suspicions that were raised, Faded those that ended without a conflict.
	Suspected uint64
	Faded     uint64
	// Confirmed counts the confirmed conflicts, by their scope at that time, Resolved those that ended. A
	// restored conflict that a previous agent counted is counted in Resolved only.
	Confirmed map[Scope]uint64
	Resolved  uint64
	// Suppressed counts the suspicions that were not raised, by reason, and those that were not confirmed because of a live migration.
	// A key counts once while the reason applies.
	Suppressed map[string]uint64
	// Overdue counts deadlines that were still due when all was done: 0, unless the detector has a fault.
	Overdue uint64
}

// StateScope is a state and scope of open conflicts.
type StateScope struct {
	State State
	Scope Scope
}

func newCounts() Counts {
	return Counts{
		Refused: map[string]uint64{
			refusedInterfaceFull: 0, refusedTableFull: 0, refusedKeyFull: 0,
			refusedOld: 0, refusedInvalid: 0, refusedNoHolder: 0, refusedUnanswered: 0, refusedMigrations: 0,
		},
		Evicted:    map[string]uint64{refusedInterfaceFull: 0, refusedTableFull: 0, refusedKeyFull: 0, evictedSource: 0},
		Confirmed:  map[Scope]uint64{SameNode: 0, CrossNode: 0, PodHost: 0, NodeNode: 0},
		Suppressed: map[string]uint64{suppressedShared: 0, suppressedForwarded: 0, suppressedMigration: 0},
	}
}
