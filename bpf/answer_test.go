package bpf

import (
	"testing"
	"time"
)

// TestAnswersToUs: a neighbour that makes a pod answer all the time does not use up the tokens of
// the answers that verification waits for.
func TestAnswersToUs(t *testing.T) {
	isolate(t)
	index := addVeth(t, "asked0")
	o := load(t, Options{Mode: TC, SolicitMAC: [3]byte(us[:3]), Constants: limits{AnswerRate: Rate{1, 3}}.constants()})
	enter(t, o, index, 1)
	answer := func(to mac, ip string) []byte {
		b := frame(podMAC, typeARP, arp(2, podMAC, ip, "10.0.0.9"))
		copy(b, to[:])
		return b
	}
	for range 100 {
		run(t, o, index, answer(mac{2, 9, 9, 9, 9, 9}, "10.0.0.1"))
	}
	records(t, o)
	if counters(t, o, index).RefusedAnswers == 0 {
		t.Fatal("no answer was refused, so this shows nothing")
	}
	run(t, o, index, answer(us, "10.0.0.2"))
	wantRecords(t, o, "the answer to us", said{Kind: Answer, IP: addr("10.0.0.2"), MAC: podMAC})
	for range 100 {
		run(t, o, index, answer(us, "10.0.0.2"))
	}
	if got := len(records(t, o)); got > 5 {
		t.Errorf("%d answers to us, want no more than their bucket holds", got)
	}
}

// TestForgedProbes: a neighbour forges our MAC, so that a pod answers to us all the time for one address.
// Its answers for another address are still recorded.
func TestForgedProbes(t *testing.T) {
	isolate(t)
	index := addVeth(t, "asked0")
	o := load(t, Options{Mode: TC, SolicitMAC: [3]byte(us[:3])})
	enter(t, o, index, 1)
	answer := func(b []byte) []byte {
		copy(b, us[:])
		return b
	}
	forged := answer(frame(podMAC, typeARP, arp(2, podMAC, "10.0.0.1", "10.0.0.9")))
	start := time.Now()
	recorded := 0
	for range 20 {
		for range 100 {
			run(t, o, index, forged)
		}
		recorded += len(records(t, o))
	}
	// Some are recorded, because they are answers.
	if most := 40 + 20*(int(time.Since(start)/time.Second)+1); recorded < 40 || recorded > most {
		t.Errorf("%d answers recorded, want 40 to %d", recorded, most)
	}
	if counters(t, o, index).RefusedAnswers == 0 {
		t.Error("no answer was refused, so this shows nothing")
	}
	run(t, o, index, answer(frame(podMAC, typeARP, arp(2, podMAC, "10.0.0.2", "10.0.0.9"))))
	run(t, o, index, answer(frame(podMAC, typeIPv6, ipv6("2001:db8::1", icmpv6, 255, neighbour(solicited, 0, "2001:db8::1")))))
	var got []said
	for _, s := range summary(records(t, o)) {
		if s.Kind == Answer {
			got = append(got, s)
		}
	}
	want := []said{
		{Kind: Answer, IP: addr("10.0.0.2"), MAC: podMAC},
		{Kind: Answer, IP: addr("2001:db8::1"), MAC: podMAC},
	}
	if diff := diff(want, got); diff != "" {
		t.Errorf("answers for other addresses (-want +got)\n%s", diff)
	}
}

// TestOwnProbesSentBack: the record identifies a mirror behind an interface.
func TestOwnProbesSentBack(t *testing.T) {
	isolate(t)
	index := addVeth(t, "asked0")
	o := load(t, Options{Mode: TC, SolicitMAC: [3]byte(us[:3])})
	enter(t, o, index, 1)
	other := us // of another probe
	other[5]++
	for _, us := range []mac{us, other} {
		run(t, o, index, frame(us, typeARP, arp(1, us, "0.0.0.0", "10.0.0.1")))
		wantRecords(t, o, "a probe", said{Kind: Tentative, IP: addr("10.0.0.1"), MAC: us})
	}
	question := ipv6("fe80::d0", icmpv6, 255, neighbour(solicitation, 0, "2001:db8::1", linkOption(1)))
	run(t, o, index, frame(us, typeIPv6, question))
	wantRecords(t, o, "a solicitation", said{Kind: Tentative, IP: addr("2001:db8::1"), MAC: us})
	run(t, o, index, frame(podMAC, typeIPv6, question))
	wantRecords(t, o, "another's solicitation")
}
