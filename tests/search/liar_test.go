package search

import (
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
)

// Whatever a member with the key says, the laws hold for the others, and their duplicates are confirmed and stay.
func TestLiars(t *testing.T) {
	pods := `seed=1 nodes=5
		10s n1 pod a 10.0.0.1
		20s n2 pod b 10.0.0.1 given=no
		30s n3 pod c 10.0.0.2
		60s n4 pod d 10.0.0.2 slow=0.5s`
	for _, test := range []struct{ name, lies string }{
		{"claims", "5s n5 claim 10.0.0.1\n5s n5 claim 10.0.0.2 answers=late as=data age=3h"},
		{"claims with many holders", "5s n5 claim 10.0.0.1 holders=9 answers=turns\n5s n5 claim 10.0.0.2 holders=9 answers=any as=host"},
		{"claims that come and go", "5s n5 claim 10.0.0.1\n20.5s n5 retract 10.0.0.1\n21s n5 claim 10.0.0.1 answers=never\n61s n5 claim 10.0.0.2 answers=wild"},
		{"hides others as a keeper", "5s n5 keep hides 5m"},
		{"keeps nothing", "5s n5 keep deaf 5m\n40s n5 stop\n50s n5 start"},
		{"does not acknowledge", "5s n5 keep silent 5m"},
		{"names holders that there are not", "5s n5 keep invents 5m\n5s n5 ask 2m"},
		{"says that others are gone", "5s n5 forge 3m\n5s n5 claim 10.0.0.1 answers=unanswered\n5s n5 claim 10.0.0.2 answers=gone"},
		{"floods", "19.5s n5 flood 3s\n59.5s n5 flood 3s"},
		{"lies to commands", "0s n5 tell any\n5s n5 claim 10.0.0.1 as=host\n5s n5 claim 10.0.0.2"},
		{"has another node's name", "0s n5 namesake n1\n0s n5 tell any\n5s n5 claim 10.0.0.1\n5s n5 forge 3m"},
		{"has another node's name and boot id", "15s n5 namesake n1 boot\n17s n5 claim 10.0.0.1 answers=any\n17s n5 forge 3m"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, err := Parse(pods + "\n" + test.lies)
			if err != nil {
				t.Fatal(err)
			}
			if r := Play(p, nil); r.Broken != nil {
				t.Error(r)
			}
			w := newWorld(p, nil)
			w.run(2 * time.Minute)
			for n, key := range []detector.Key{keyOf("10.0.0.1"), keyOf("10.0.0.1"), keyOf("10.0.0.2"), keyOf("10.0.0.2")} {
				if c := w.machines[n].agent.confirmed(key); c == nil || len(c.Holders) < 2 {
					t.Errorf("%s has no conflict of %s", w.machines[n].label, key.IP)
				}
			}
		})
	}
}
