package scenarios

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// verdict has the results of all detectors in one scenario.
type verdict struct {
	row    *outcome
	scores []score
}

// results collects the verdicts.
type results struct {
	mu       sync.Mutex
	verdicts []verdict
}

var bench results

func (b *results) add(v verdict) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.verdicts = append(b.verdicts, v)
}

// cannotSee is what each detector is blind to by its nature.
var cannotSee = map[string]string{
	"dupip":    "pods that neither send nor answer; see the README",
	"arpwatch": "other nodes, IPv6, routed pods, cloned MACs, VLANs",
	"tshark":   "other nodes, IPv6, cloned MACs",
	"evpn":     "holders that do not both go on sending ARP or NDP",
	"podip":    "whatever is not in the API: addresses taken later, hosts, guests, other networks",
}

// print writes a line for every scenario and one for every detector.
func (b *results) print(out io.Writer) {
	if len(b.verdicts) == 0 {
		return
	}
	slices.SortFunc(b.verdicts, func(x, y verdict) int { return cmp.Compare(x.row.place, y.row.place) })
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "ID")
	for _, sc := range b.verdicts[0].scores {
		fmt.Fprintf(w, "\t%s", sc.name)
	}
	fmt.Fprintln(w, "\tSITUATION")
	for _, v := range b.verdicts {
		fmt.Fprint(w, v.row.ID)
		for _, sc := range v.scores {
			fmt.Fprintf(w, "\t%s", sc.text())
		}
		fmt.Fprintf(w, "\t%s\n", v.row.Text)
	}
	_ = w.Flush()
	fmt.Fprintln(out)
	b.summary(out)
}

// text is a short text of a scenario's result.
func (sc score) text() string {
	var words []string
	switch {
	case sc.of == 0 && len(sc.wrong) == 0:
		return "quiet"
	case sc.of > 0 && len(sc.took) == 0:
		words = append(words, "missed")
	case sc.of > 0 && len(sc.took) < sc.of:
		words = append(words, fmt.Sprintf("%d of %d", len(sc.took), sc.of), seconds(slices.Max(sc.took)))
	case sc.of > 0:
		words = append(words, seconds(slices.Max(sc.took)))
	}
	if n := len(sc.wrong); n > 0 {
		words = append(words, fmt.Sprintf("FALSE (%d)", n))
	}
	return strings.Join(words, " ")
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// summary writes a line for every detector, and a total.
func (b *results) summary(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "DETECTOR\tFOUND\tSTORIES FOUND\tSTORIES WITH FALSE ALARMS\tMEDIAN\tSLOWEST\tCANNOT SEE")
	var last []string
	for i, first := range b.verdicts[0].scores {
		var took []time.Duration
		of, stories, whole, wrong := 0, 0, 0, 0
		for _, v := range b.verdicts {
			sc := v.scores[i]
			took, of = append(took, sc.took...), of+sc.of
			if sc.of > 0 {
				stories++
				if len(sc.took) == sc.of {
					whole++
				}
			}
			if len(sc.wrong) > 0 {
				wrong++
			}
		}
		middle, slowest := "", ""
		if len(took) > 0 {
			slices.Sort(took)
			middle, slowest = seconds(took[len(took)/2]), seconds(took[len(took)-1])
		}
		fmt.Fprintf(w, "%s\t%d of %d\t%d of %d\t%d of %d\t%s\t%s\t%s\n", first.name, len(took), of, whole, stories,
			wrong, len(b.verdicts), middle, slowest, cannotSee[first.name])
		last = append(last, fmt.Sprintf("%s %d of %d and %d false", first.name, len(took), of, wrong))
	}
	_ = w.Flush()
	fmt.Fprintf(out, "\ncompared in %d stories: %s\n", len(b.verdicts), strings.Join(last, ", "))
}
