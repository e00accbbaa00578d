package detector

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
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
		if b.Counts() {
			live++
		}
	}
	n, ok := claimed(s.Verdict)
	if !ok && !strings.Contains(s.Verdict, "before the agent's restart") || ok && n != live {
		return fmt.Errorf("%v: %d live holders, and the verdict %q", s.Key, live, s.Verdict)
	}
	return nil
}
