package kube

import "time"

// Meta is what all objects have.
type Meta struct {
	Name            string `json:"name"`
	Namespace       string `json:"namespace"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// Reference names an object.
type Reference struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name,omitempty"`
	UID        string `json:"uid,omitempty"`
}

// Event is an Event of events.k8s.io/v1.
type Event struct {
	APIVersion          string     `json:"apiVersion,omitempty"`
	Kind                string     `json:"kind,omitempty"`
	Metadata            Meta       `json:"metadata"`
	EventTime           MicroTime  `json:"eventTime"`
	Series              *Series    `json:"series,omitempty"`
	ReportingController string     `json:"reportingController"`
	ReportingInstance   string     `json:"reportingInstance"`
	Action              string     `json:"action"`
	Reason              string     `json:"reason"`
	Regarding           Reference  `json:"regarding"`
	Related             *Reference `json:"related,omitempty"`
	Note                string     `json:"note"`
	Type                string     `json:"type"`
}

// Listed is what the reporter needs of an Event that is there. What else is in it, and how large that is, others may have chosen.
type Listed struct {
	Metadata  struct{ Namespace, Name string }
	EventTime MicroTime
	Series    *Series
}

// Series says that what an Event reports is going on.
type Series struct {
	Count            int       `json:"count"`
	LastObservedTime MicroTime `json:"lastObservedTime"`
}

// Lease is a Lease of coordination.k8s.io/v1.
type Lease struct {
	APIVersion string    `json:"apiVersion,omitempty"`
	Kind       string    `json:"kind,omitempty"`
	Metadata   LeaseMeta `json:"metadata"`
	Spec       LeaseSpec `json:"spec"`
}

// LeaseMeta has what the chart says of it, too, which stays.
type LeaseMeta struct {
	Meta
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// LeaseSpec says who holds a Lease. The others measure on their own clocks for how long it does not change.
type LeaseSpec struct {
	HolderIdentity       string     `json:"holderIdentity"`
	LeaseDurationSeconds int        `json:"leaseDurationSeconds"`
	AcquireTime          *MicroTime `json:"acquireTime,omitempty"`
	RenewTime            *MicroTime `json:"renewTime,omitempty"`
	LeaseTransitions     int        `json:"leaseTransitions"`
}

// MicroTime is a time as the API server wants it: with microseconds, also if they are zero.
type MicroTime struct{ time.Time }

// MarshalJSON implements [encoding/json.Marshaler].
func (t MicroTime) MarshalJSON() ([]byte, error) {
	return []byte(t.UTC().Format(`"2006-01-02T15:04:05.000000Z"`)), nil
}
