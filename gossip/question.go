package gossip

import (
	"math/rand/v2"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/roster"
	"github.com/dupip/dupip/gossip/wire"
)

const (
	// rememberFor is how long a question and its answer are remembered, should it be asked
	// again because the answer was lost.
	rememberFor = 5 * time.Second
	// maxQuestions bounds them, maxOfAsker those of one node among them.
	maxQuestions = 8192
	maxOfAsker   = 2048
)

// questions are those of other nodes.
type questions struct {
	byID  map[uint64]*question
	asked map[asked]*question
	of    map[*roster.Node]int
	order []*question // in order of time
}

// asked names a question as its asker does.
type asked struct {
	from   *roster.Node
	member wire.MemberID // its incarnation: the next one begins anew
	id     uint64
}

// question is one question, with its answer when there is one.
type question struct {
	id uint64
	asked
	key    detector.Key
	holder wire.Holder
	at     time.Time
	// answer is that of answered, nil before.
	answer   *wire.Verified
	answered time.Time
}

func (q *questions) init() {
	q.byID, q.asked, q.of = make(map[uint64]*question), make(map[asked]*question), make(map[*roster.Node]int)
}

// expire forgets questions that will not be asked again, and returns when there are more to
// forget, zero for never.
func (q *questions) expire(now time.Time) time.Time {
	for len(q.order) > 0 && now.Sub(q.order[0].at) >= rememberFor {
		old := q.order[0]
		q.order[0] = nil
		q.order = q.order[1:]
		delete(q.byID, old.id)
		delete(q.asked, old.asked)
		if q.of[old.from]--; q.of[old.from] == 0 {
			delete(q.of, old.from)
		}
	}
	if len(q.order) == 0 {
		return time.Time{}
	}
	return q.order[0].at.Add(rememberFor)
}

// receiveAsk takes in a question. One that is asked again is answered from memory, or when
// its answer comes.
func (g *Gossip) receiveAsk(from *roster.Node, a wire.Ask, now time.Time) {
	g.questions.expire(now)
	name := asked{from, from.Member, a.ID}
	if q := g.questions.asked[name]; q != nil {
		if q.answer != nil && q.key == a.Key {
			g.sendAnswer(q, now)
		}
		return
	}
	switch {
	case !g.peer(from).asks.AllowN(now, 1):
		g.count.drop(dropAskRate)
		return
	case len(g.questions.order) >= maxQuestions, g.questions.of[from] >= maxOfAsker:
		g.count.drop(dropQuestions)
		return
	}
	// The agent does not need to know whom the number came from, and cannot mix them up.
	q := &question{id: rand.Uint64(), asked: name, key: a.Key, holder: a.Holder, at: now}
	m := cluster.ProbeRequest{ID: q.id, From: from.ID, Key: a.Key, Holder: holderOf(g.roster.Self(), a.Holder)}
	for _, c := range a.Claims {
		m.Bindings = append(m.Bindings, claimOf(from, c, now))
	}
	if !g.tell(m) {
		return // asked again, it may find room
	}
	g.questions.byID[q.id], g.questions.asked[name] = q, q
	g.questions.of[from]++
	g.questions.order = append(g.questions.order, q)
}

// ReplyProbe answers the [cluster.ProbeRequest] with that ID.
func (g *Gossip) ReplyProbe(request uint64, t cluster.ProbeReply) {
	g.in.call(func() { g.testify(request, t, time.Now()) })
}

func (g *Gossip) testify(id uint64, t cluster.ProbeReply, now time.Time) {
	q := g.questions.byID[id]
	if q == nil || q.answer != nil || t.Outcome < cluster.Answered || t.Outcome > cluster.Refused {
		g.count.drop(dropTestimony)
		return
	}
	v := wire.Verified{ID: q.asked.id, Key: q.key, Outcome: t.Outcome, Reason: t.Reason}
	switch unclaimed := t.Binding.Evidence == 0; {
	case unclaimed && t.Outcome == cluster.Answered:
		v.Outcome = cluster.Gone // it went meanwhile
	case unclaimed:
		v.Claim.Evidence = detector.Forwarded // which is as good as nothing, see receiveVerified
	case t.Outcome != cluster.Gone:
		v.Claim = g.wireClaim(t.Binding, now)
		v.Details = wire.DetailsOf(t.Binding.Holder, t.Binding.FoundAtStart, now)
	}
	v.Claim.Holder = q.holder
	switch {
	case v.Outcome == cluster.Answered:
		v.Answer = max(0, now.Sub(t.At))
	case v.Outcome == cluster.Refused && !t.RetryAt.IsZero():
		v.Retry = max(time.Millisecond, t.RetryAt.Sub(now))
	}
	q.answer, q.answered = &v, now
	g.sendAnswer(q, now)
}

// sendAnswer sends an answer; what was an age then is more now.
func (g *Gossip) sendAnswer(q *question, now time.Time) {
	if g.roster.Sender(q.member) != q.from || !q.from.Alive {
		return
	}
	v, later := *q.answer, now.Sub(q.answered)
	switch v.Outcome {
	case cluster.Answered:
		v.Answer += later
	case cluster.Refused:
		if v.Retry > 0 {
			v.Retry = max(time.Millisecond, v.Retry-later)
		}
	}
	g.out.add(q.from, v, now)
}
