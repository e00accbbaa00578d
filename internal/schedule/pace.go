package schedule

import "time"

// paceShare is how many times as long as work took it rests.
const paceShare = 20

// Pace keeps work that grows with what there is, such as going through all open conflicts, to a twentieth of the time. The zero value lets it
// begin at once.
type Pace struct{ next time.Time }

// Next returns when work may begin that is wanted at a time.
func (p *Pace) Next(at time.Time) time.Time { return Later(at, p.next) }

// Done notes from when to when work took place.
func (p *Pace) Done(began, ended time.Time) { p.next = ended.Add(paceShare * ended.Sub(began)) }
