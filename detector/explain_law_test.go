package detector

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The beginnings of verdicts that say how many live holders there are, and what changes that number.
var (
	saysHolders = regexp.MustCompile(`^(no|one|two|\d+) (live holders?|holders|nodes)\b`)
	saysLeft    = regexp.MustCompile(`; (no|one|two|\d+) live holders? (?:is|are) left`)
	saysMore    = regexp.MustCompile(`; not verified yet: ([^;]+)`)
	saysAndMore = regexp.MustCompile(` and (\d+) more$`)
)

// claimed returns how many live holders a verdict says that there are; false if it does not say.
func claimed(verdict string) (n int, ok bool) {
	value := func(word string) int {
		switch word {
		case "no":
			return 0
		case "one":
			return 1
		case "two":
			return 2
		}
		n, _ := strconv.Atoi(word)
		return n
	}
	switch found := saysHolders.FindStringSubmatch(verdict); {
	case found != nil:
		n = value(found[1])
	case strings.HasPrefix(verdict, "known only as forwarded by "):
	default:
		return 0, false
	}
	if found := saysLeft.FindStringSubmatch(verdict); found != nil {
		n = value(found[1])
	}
	if found := saysMore.FindStringSubmatch(verdict); found != nil {
		names := found[1]
		if more := saysAndMore.FindStringSubmatch(names); more != nil {
			n += value(more[1])
			names = strings.TrimSuffix(names, more[0])
		}
		n += strings.Count(names, ", ") + 1
	}
	return n, true
}

// auditVerdict returns an error if a verdict does not say of as many live holders as are listed below it.
func auditVerdict(s Story) error {
	live := 0
	for _, b := range s.Bindings {
		if b.Evidence.Counts() {
			live++
		}
	}
	n, ok := claimed(s.Verdict)
	if !ok && !strings.Contains(s.Verdict, "before the agent's restart") || ok && n != live {
		return fmt.Errorf("%v: %d live holders, and the verdict %q", s.Key, live, s.Verdict)
	}
	return nil
}

// Whatever holders the nodes together know, the sentence says how many are live, and calls two that should be in conflict no
// conflict only if the configuration allows them.
func TestNoConflictSaysHowMany(t *testing.T) {
	var try func(holders []Binding)
	try = func(holders []Binding) {
		for _, shared := range []bool{false, true} {
			s := Story{Bindings: holders, Verdict: NoConflict(holders, shared)}
			if err := auditVerdict(s); err != nil {
				t.Error(err)
			}
			var live []*binding
			for _, b := range holders {
				if b.Evidence.Counts() {
					live = append(live, &binding{evidence: b.Evidence})
				}
			}
			if got, want := strings.HasSuffix(s.Verdict, ": not a conflict"), shared || !conflicting(live); got != want {
				t.Errorf("%v, shared %v: %q", holders, shared, s.Verdict)
			}
		}
		for ev := Forwarded; ev <= Host && len(holders) < 4; ev++ {
			try(append(holders[:len(holders):len(holders)], Binding{Evidence: ev}))
		}
	}
	try(nil)
}
