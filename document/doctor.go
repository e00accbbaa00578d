package document

// DoctorStatus is the outcome of a check.
type DoctorStatus string

// The outcomes.
const (
	DoctorOK DoctorStatus = "ok"
	// DoctorWarn: it runs, but loses something.
	DoctorWarn DoctorStatus = "warn"
	// DoctorFail: an agent does not start, or duplicates are missed.
	DoctorFail DoctorStatus = "fail"
	// DoctorSkip: not examined, because it does not apply or a permission is missing.
	DoctorSkip DoctorStatus = "skip"
)

// DoctorCheck is one thing that was examined.
type DoctorCheck struct {
	Name    string       `json:"name"`
	Status  DoctorStatus `json:"status"`
	Finding string       `json:"finding"`
	// Advice is empty for [DoctorOK] and most of [DoctorSkip].
	Advice string `json:"advice,omitzero"`
}

// DoctorSummary counts the checks by outcome.
type DoctorSummary struct {
	OK       int `json:"ok"`
	Warnings int `json:"warnings"`
	Failures int `json:"failures"`
	Skipped  int `json:"skipped"`
}

// DoctorReport is what the doctor found on a node, or of all of dupip in a cluster. Later checks depend on earlier ones, so solve the
// first failure first.
type DoctorReport struct {
	Checks  []DoctorCheck `json:"checks"`
	Summary DoctorSummary `json:"summary"`
}

// NewDoctorReport counts checks.
func NewDoctorReport(checks []DoctorCheck) DoctorReport {
	counts := make(map[DoctorStatus]int)
	for _, c := range checks {
		counts[c.Status]++
	}
	return DoctorReport{checks, DoctorSummary{OK: counts[DoctorOK], Warnings: counts[DoctorWarn], Failures: counts[DoctorFail], Skipped: counts[DoctorSkip]}}
}
