package agent

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// Where many nodes have an address, each asks each: a pod is solicited for all at once.
func TestManyQuestionsAboutOneHolder(t *testing.T) {
	const askers = 100
	l, r := joined(t, "")
	i := l.attach(t, "veth1", "cni0", "eth0", 1, 11, "10.0.0.1")
	l.see(i, "10.0.0.1")
	l.verifyRate.SetLimit(0) // nothing is refilled
	before := l.verifyRate.Tokens()
	for n := range askers {
		l.heard(cluster.Question{
			ID: uint64(n + 1), From: fmt.Sprintf("asker%d/boot", n), Key: key("default", "10.0.0.1"), Holder: i.holder,
		})
	}
	if sent := before - l.verifyRate.Tokens(); sent > askers/4 {
		t.Errorf("%v solicitations for %d questions that came together", sent, askers)
	}
	l.answer(i, "10.0.0.1")
	answered := 0
	for _, told := range r.told {
		if told.Outcome == cluster.Answered {
			answered++
		}
	}
	if answered != askers || len(l.questions.due) != 0 || len(l.questions.about) != 0 {
		t.Errorf("%d of %d askers were told of the one answer, %d questions are left", answered, askers, len(l.questions.due))
	}
}

// Other nodes' questions must not hold up what this node suspects itself.
func TestQuestionsLeaveRoomForOwnSuspicions(t *testing.T) {
	l, r := joined(t, "limits: {verifyPerSecond: 40}\n")
	l.verifyRate.SetLimit(0)
	for n := range 100 {
		ip := fmt.Sprintf("10.0.1.%d", n)
		i := l.attach(t, fmt.Sprintf("veth%d", n), "cni0", "eth0", 1+n, uint64(100+n), ip)
		l.see(i, ip)
		l.heard(cluster.Question{ID: uint64(n + 1), From: elsewhere.Node, Key: key("default", ip), Holder: i.holder})
	}
	for range 5 {
		if i := l.interfaces[detector.Interface{Ifindex: 1, Generation: 1}]; i != nil {
			if refusal, _ := l.put(detector.Solicitation{
				Key: key("default", "10.0.1.0"), Holder: i.holder, Interface: i.ref, Purpose: detector.Verify,
			}, time.Now()); refusal != "" {
				t.Fatalf("an own question is refused: %s", refusal)
			}
		}
	}
	// Those that found no room are told in time, all of them.
	for deadline := time.Now().Add(10 * time.Second); len(r.told) < 100 && time.Now().Before(deadline); {
		l.advanceQuestions(time.Now())
	}
	refused := 0
	for _, told := range r.told {
		if told.Outcome == cluster.Refused {
			refused++
			if told.RetryAt.IsZero() || told.Reason != rateReason {
				t.Fatalf("told %+v, want the rate limit and when to ask again", told)
			}
		}
	}
	if len(r.told) != 100 || refused < 70 {
		t.Errorf("%d told, %d of them refused", len(r.told), refused)
	}
}

func TestQuestionsTakeTurns(t *testing.T) {
	var qs questions
	began := time.Now()
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	ask := func(ip string, ms int) *question {
		q := &question{Question: cluster.Question{Key: key("default", ip), Holder: elsewhere}, arrived: at(ms), next: at(ms)}
		qs.add(q)
		return q
	}
	a, b, c := ask("10.0.0.1", 0), ask("10.0.0.2", 1), ask("10.0.0.3", 2)
	var order []*question
	for q := qs.first(at(2)); q != nil; q = qs.first(at(2)) {
		order = append(order, q)
		qs.put(q.whom(), at(2))
		qs.wait(q, at(100))
	}
	if !slices.Equal(order, []*question{a, b, c}) || !qs.next().Equal(at(100)) {
		t.Fatalf("took them in the order %v, next at %v", order, qs.next().Sub(began))
	}
	late := ask("10.0.0.1", 5)
	if want := at(2).Add(together); !late.next.Equal(want) {
		t.Errorf("a question right after another about the same holder is due after %v, want %v", late.next.Sub(began), want.Sub(began))
	}
	if qs.put(late.whom(), at(30)); !qs.served(late, at(31)) || qs.served(late, at(60)) {
		t.Error("a solicitation serves those who asked before, for a moment")
	}
	if later := ask("10.0.0.1", 31); qs.served(later, at(31)) {
		t.Error("a solicitation served a question that came after it")
	}
	if qs.paused = at(500); qs.first(at(400)) != nil || !qs.next().Equal(at(500)) {
		t.Error("a pause is no pause")
	}
	for _, q := range []*question{a, b, c, late} {
		if !qs.end(q) || qs.end(q) {
			t.Error("a question does not end just once")
		}
	}
	if len(qs.due) != 1 || len(qs.about) != 1 || len(qs.asked) > 3 {
		t.Errorf("%d questions, %d holders, %d solicitations are left", len(qs.due), len(qs.about), len(qs.asked))
	}
}
