package events

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/judge"
	"github.com/dupip/dupip/document/say"
	"github.com/dupip/dupip/internal/schedule"
)

const (
	// factsTime is how long what the reporter says of a conflict waits for the facts of all nodes: they report it one after the other.
	factsTime = 3 * time.Second
	// judgedEvery is how often conflicts are judged for the metrics, at most maxJudged, and maxJudgedOf of one network: the alerts name
	// ten addresses of a network one by one.
	judgedEvery            = 2 * time.Second
	maxJudged, maxJudgedOf = 100, 10
	// maxNetwork bounds the name of a network as the metrics of agents do, with which these are joined; maxShort a judgement.
	maxNetwork, maxShort = 128, 400
)

// Judgement is that of the conflict of an address, by the facts of all nodes. Text is its short form.
type Judgement struct {
	Network, IP             string
	Cause, Confidence, Text string
}

// judging has what judgements depend on besides the reports, and the last ones.
type judging struct {
	judge.Context
	namesakes map[string]netip.Addr // where the agents are whose node's name another one has, by NodeID
	last      []Judgement
	at        time.Time // when last was made
}

// members takes the members of gossip.
func (j *judging) members(members []cluster.Member) {
	j.Context, j.namesakes = judge.Around(members), make(map[string]netip.Addr)
	for _, m := range members {
		if m.Live() && j.Namesakes[m.Name] {
			at, _ := netip.ParseAddrPort(m.Address)
			j.namesakes[m.NodeID()] = at.Addr().Unmap()
		}
	}
}

// coming reports whether facts of holders are missing, for as long as that may be.
func (j *judging) coming(c document.Conflict) bool {
	j.Now = time.Time{}
	made := judge.Of(c, j.Context)
	return made != nil && made.Cause == document.CauseComing
}

// judge returns the judgement of a conflict, with its words; nil if there is none that will last.
func (j *judging) judge(c document.Conflict, now time.Time) *document.Judgement {
	j.Now = now
	if c.Judgement = judge.Of(c, j.Context); c.Judgement == nil || c.Judgement.Cause == document.CauseComing {
		return nil
	}
	say.Fill(&c, j.namesakes)
	return c.Judgement
}

// podNote is the note of a pod's Event, with the judgement by all that is known now. Nobody can change it later, so it leaves out a
// judgement that is about the next minutes only.
func (p *Planner) podNote(n *notice, now time.Time) string {
	text := n.note
	for _, c := range p.merged(n.key) {
		if !slices.ContainsFunc(c.Holders, func(b document.Binding) bool { return b.ID() == n.holder }) {
			continue
		}
		if j := p.judging.judge(c, now); j != nil && j.Cause != document.CauseUnreachable {
			text += " " + j.Short
		}
		break
	}
	order := " What to do: " + p.Program + " explain " + n.key.IP.String()
	return document.Text(text, maxNote-len(order)) + order
}

// merged are the open conflicts of an address, with what the books say.
func (p *Planner) merged(key detector.Key) []document.Conflict {
	list := p.state.merged(key)
	for i := range list {
		if p.About != nil {
			p.About(&list[i])
		}
	}
	return list
}

// Judgements returns those of the oldest open conflicts, made at most judgedEvery ago.
func (p *Planner) Judgements(now time.Time) []Judgement {
	if now.Sub(p.judging.at) < judgedEvery {
		return p.judging.last
	}
	var list []Judgement
	of := make(map[string]int)
	for _, key := range p.state.oldest() {
		network := document.Text(key.Network, maxNetwork)
		if len(list) >= maxJudged || of[network] >= maxJudgedOf {
			continue
		}
		of[network]++
		merged := p.merged(key)
		if len(merged) == 0 {
			continue
		}
		c := merged[0] // the gravest, if each node has one of its own
		if now.Sub(p.state.conflicts[key].since) < factsTime && p.judging.coming(c) {
			continue
		}
		ip := key.IP.String()
		isSame := func(j Judgement) bool { return j.Network == network && j.IP == ip } // of networks whose names are cut
		if j := p.judging.judge(c, now); j != nil && !slices.ContainsFunc(list, isSame) {
			list = append(list, Judgement{network, ip, j.Cause, j.Confidence, document.Text(j.Short, maxShort)})
		}
	}
	p.judging.last, p.judging.at = list, now
	return list
}

// oldest returns the addresses in conflict, those with the oldest conflicts first: replicas agree on them.
func (s *state) oldest() []detector.Key {
	began := make(map[detector.Key]time.Time, len(s.conflicts))
	keys := make([]detector.Key, 0, len(s.conflicts))
	for key, r := range s.conflicts {
		keys = append(keys, key)
		for _, c := range r.by {
			began[key] = schedule.Earlier(began[key], c.ConfirmedAt)
		}
	}
	slices.SortFunc(keys, func(a, b detector.Key) int { return cmp.Or(began[a].Compare(began[b]), a.Compare(b)) })
	return keys
}
