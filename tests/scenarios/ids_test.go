package scenarios

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// splitID gives the letter and the number of an id.
func splitID(id string) (letter string, number int) {
	if id == "" {
		return "", 0
	}
	number, _ = strconv.Atoi(id[1:])
	return id[:1], number
}

// compareIDs puts D2 before D10, and D before Q.
func compareIDs(x, y string) int {
	xLetter, xNumber := splitID(x)
	yLetter, yNumber := splitID(y)
	return cmp.Or(cmp.Compare(xLetter, yLetter), cmp.Compare(xNumber, yNumber))
}

// ids are those in a flag.
func ids(text string) []string {
	return strings.FieldsFunc(strings.ToUpper(text), func(r rune) bool { return r == ',' || r == ' ' })
}

// matchesID returns whether a scenario is among those in a flag; without a flag all are.
func matchesID(text, id string) bool {
	list := ids(text)
	return len(list) == 0 || slices.Contains(list, id)
}

// checkIDs returns an error that names an id that no row has.
func checkIDs(text string) error {
	known := map[string]bool{}
	last := map[string]int{}
	for _, sc := range allScenarios() {
		known[sc.ID] = true
		letter, number := splitID(sc.ID)
		last[letter] = max(last[letter], number)
	}
	for _, id := range ids(text) {
		if !known[id] {
			return fmt.Errorf("there is no situation %s; there are D1 to D%d, which must be found, and Q1 to Q%d, which must stay quiet",
				id, last["D"], last["Q"])
		}
	}
	return nil
}

func TestIDs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"": true, "D5": true, "d5": true, "Q99": false, "D5,q1 Q2": true, "5": false, "D": false} {
		if err := checkIDs(text); (err == nil) != want {
			t.Errorf("ids %q: got %v, want them known: %t", text, err, want)
		}
	}
	if !matchesID("q1, d5", "D5") || matchesID("d5", "D15") || !matchesID("", "Q1") {
		t.Error("the wrong ids are played")
	}
	for _, letter := range []string{"D", "Q"} {
		// As in the list of situations: none is left out.
		number := 0
		for _, sc := range allScenarios() {
			if l, n := splitID(sc.ID); l == letter {
				if n > number+1 {
					t.Errorf("there is no %s%d", letter, number+1)
				}
				number = n
			}
		}
	}
}
