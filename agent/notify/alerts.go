package notify

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/say"
	"github.com/dupip/dupip/internal/bounds"
	"github.com/dupip/dupip/internal/schedule"
)

const (
	// many is with how many addresses of a network these are one alert, as in deploy/alerts.yaml.
	many = 10
	// maxAlerts bounds the alerts that are sent, with those that have ended.
	maxAlerts = 256
	// maxDescription bounds an annotation, in bytes. A command that is cut may do harm, so a longer one has none.
	maxDescription = 16 << 10
)

var release = regexp.MustCompile(`^\d+\.\d+\.\d+$`)

// runbook is the address of the runbook's chapter about an alert, in the agent's version if that is published.
func runbook(version, name string) string {
	tag := "main"
	if release.MatchString(version) {
		tag = "v" + version
	}
	return "https://github.com/dupip/dupip/blob/" + tag + "/deploy/RUNBOOK.md#" + strings.ToLower(name)
}

var tooManyAlerts = bounds.New("too many alerts for Alertmanager")

// labels identify an alert. They are those of deploy/alerts.yaml, so that an Alertmanager that hears of a conflict from the agents of all
// its holders, and from a Prometheus, has one alert. An address of a network that belongs to one node may be in conflict on another, too:
// then node tells them apart.
type labels struct{ name, cluster, network, ip, node string }

// alert is one at a time. end is zero while it fires.
type alert struct {
	start, end  time.Time
	annotations map[string]string
	conflicts   []document.Conflict
}

// posted is an alert of Alertmanager's API (api/v2/openapi.yaml: postableAlert). Alertmanager's own type of it brings 24 modules.
type posted struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	StartsAt    time.Time         `json:"startsAt"`
	EndsAt      time.Time         `json:"endsAt"`
}

// setAlerts brings the alerts up to date with the open conflicts of all nodes, of which those that mine selects are told.
func (n *Notifier) setAlerts(doc document.Conflicts, open []document.Conflict, mine func(document.Conflict) bool, where func(document.Conflict) heldOn, now time.Time) {
	// First by network, or by the node that shares with many; then each address of a network that has few.
	claimer, others, claimed := say.Claimant(doc)
	groups := make(map[labels][]document.Conflict)
	for _, c := range open {
		as := labels{name: "DupipDuplicateAddresses", cluster: n.opts.Cluster, network: c.Network, node: where(c).node}
		if claimed(c) {
			as = labels{name: "DupipNodeSharesWithMany", cluster: n.opts.Cluster, node: claimer}
		}
		groups[as] = append(groups[as], c)
	}
	fires, present := make(map[labels][]document.Conflict), make(map[labels]bool)
	for of, group := range groups {
		for _, c := range group {
			as, alone := of, group
			if of.name == "DupipDuplicateAddresses" && len(group) <= many {
				as.name, as.ip, alone = "DupipDuplicateAddress", c.IP.String(), []document.Conflict{c}
			}
			if fires[as] = alone; mine(c) {
				present[as] = true
			}
		}
	}
	for as := range present {
		if _, known := n.alerts[as]; !known && !n.hasRoom() {
			tooManyAlerts.Exceeded(1)
			continue
		}
		a := alert{start: now, conflicts: fires[as]}
		for _, c := range a.conflicts {
			a.start = schedule.Earlier(a.start, c.ConfirmedAt)
		}
		a.annotations = n.annotate(as, a.conflicts, doc.Pairs, others)
		n.alerts[as] = a
	}
	// An alert ends if nobody has the conflict. If another node has it, that one goes on; if a node is not heard of, it may: then the
	// alert ends by itself, when nobody sends it. Else two agents would end and begin it by turns.
	for as, a := range n.alerts {
		if present[as] {
			continue
		}
		unheard := doc.Omitted > 0 || slices.ContainsFunc(a.conflicts, func(c document.Conflict) bool {
			return slices.ContainsFunc(c.Holders, func(b document.Binding) bool { return b.Unreachable || doc.Lacks(b) })
		})
		switch {
		case fires[as] != nil, a.end.IsZero() && unheard, !a.end.IsZero() && now.Sub(a.end) > keep:
			delete(n.alerts, as)
		case a.end.IsZero():
			a.end, a.conflicts = now, nil
			n.alerts[as] = a
		}
	}
}

// hasRoom reports whether there may be one alert more: the end of another one is given up for it.
func (n *Notifier) hasRoom() bool {
	if len(n.alerts) < maxAlerts {
		return true
	}
	for as, a := range n.alerts {
		if !a.end.IsZero() {
			tooManyAlerts.Exceeded(1)
			delete(n.alerts, as)
			return true
		}
	}
	return false
}

// annotate says in the words of all surfaces what an alert is about.
func (n *Notifier) annotate(as labels, conflicts []document.Conflict, pairs []document.Pair, others int) map[string]string {
	entries := say.Entries(document.Conflicts{Conflicts: conflicts, Pairs: pairs})
	hint, texts := "To list all and see what to do, run: dupip conflicts --cluster", map[string]string{"runbook_url": runbook(n.opts.Self.Version, as.name)}
	switch as.name {
	case "DupipNodeSharesWithMany":
		texts["summary"] = "Node " + as.node + " shares addresses with " + strconv.Itoa(others) + " other nodes"
	case "DupipDuplicateAddresses":
		texts["summary"] = strconv.Itoa(len(conflicts)) + " addresses of network " + as.network + " have two or more holders"
	default:
		c := conflicts[0]
		texts["summary"] = as.ip + " is held by " + say.Conjoin(say.Labels(c))
		hint, entries = "To see what to do, run: dupip explain "+as.ip, nil
		if j := c.Judgement; j != nil {
			texts["summary"] += ". " + j.Short
			texts["confidence"] = j.Confidence
			entries = []say.Entry{{Text: j.Text, Steps: j.Steps}}
		}
	}
	texts["description"] = hint
	if text := say.Plain(entries); text != "" && len(text) <= maxDescription {
		texts["description"] = text + "\n" + hint
	}
	return texts
}

// batch is what is sent: alerts that fire end by themselves if they are not sent again.
func batch(alerts map[labels]alert, now time.Time) (list []posted) {
	for as, a := range alerts {
		p := posted{make(map[string]string), a.annotations, a.start, a.end}
		if a.end.IsZero() {
			p.EndsAt = now.Add(lapse)
		}
		for name, value := range map[string]string{
			"alertname": as.name, "severity": "critical", "cluster": as.cluster, "network": as.network, "ip": as.ip, "node": as.node,
		} {
			if value != "" {
				p.Labels[name] = value
			}
		}
		list = append(list, p)
	}
	return list
}
