package vm

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// matrix is what was played under which kernel, on which kind of device, by which mode of attaching.
type matrix []play

// play is one row of the table of tests/scenarios. confirmed is in seconds, 0 for none.
type play struct {
	device, kernel, mode, id, want, seen string
	confirmed                            float64
}

var (
	tableRow   = regexp.MustCompile(`(?m)^([DQ]\d+) +(found|quiet) +(.{17})(?: +[\d.]+ s +([\d.]+) s)?(.*)$`)
	needDevice = regexp.MustCompile(`\[(\w+)\]`)
)

// add takes the rows out of what a suite printed, whose pair is the device of those that name none.
func (m *matrix) add(kernel string, s suite, printed string) {
	for _, row := range tableRow.FindAllStringSubmatch(printed, -1) {
		p := play{device: s.pair, kernel: kernel, mode: s.mode, id: row[1], want: row[2], seen: strings.TrimSpace(row[3])}
		p.confirmed, _ = strconv.ParseFloat(row[4], 64)
		if need := needDevice.FindStringSubmatch(row[5]); need != nil {
			p.device = need[1]
		}
		*m = append(*m, p)
	}
}

// print prints a line for each device, kernel and mode, with the median of the seconds after which duplicates were confirmed. A row that
// failed is in capitals in the suite's table.
func (m matrix) print(out io.Writer) {
	line := "%-11s  %-6s  %-4s  %-9s  %-8s  %7s  %s\n"
	for i, group := range m.groups() {
		if i == 0 {
			fmt.Fprintf(out, line, "DEVICE", "KERNEL", "MODE", "FOUND", "QUIET", "SECONDS", "SCENARIOS")
		}
		sum := map[string][2]int{}
		var ids []string
		var seconds []float64
		for _, p := range group {
			if p.confirmed > 0 {
				seconds = append(seconds, p.confirmed)
			}
			count := sum[p.want]
			count[1]++
			if strings.HasPrefix(p.seen, p.want) {
				count[0]++
				ids = append(ids, p.id)
			} else {
				ids = append(ids, p.id+" ("+p.seen+")")
			}
			sum[p.want] = count
		}
		ofAll := func(want string) string { return fmt.Sprintf("%d of %d", sum[want][0], sum[want][1]) }
		median := ""
		if slices.Sort(seconds); len(seconds) > 0 {
			median = fmt.Sprintf("%.1f", seconds[len(seconds)/2])
		}
		fmt.Fprintf(out, line, group[0].device, group[0].kernel, group[0].mode, ofAll("found"), ofAll("quiet"), median, strings.Join(slices.Compact(ids), " "))
	}
}

// groups are the plays of one device, kernel and mode each, in order.
func (m matrix) groups() (all []matrix) {
	compare := func(x, y play) int {
		return cmp.Or(cmp.Compare(x.device, y.device), cmp.Compare(x.kernel, y.kernel), cmp.Compare(x.mode, y.mode))
	}
	slices.SortStableFunc(m, compare)
	for len(m) > 0 {
		n := slices.IndexFunc(m, func(p play) bool { return compare(p, m[0]) != 0 })
		if n < 0 {
			n = len(m)
		}
		all, m = append(all, m[:n]), m[n:]
	}
	return all
}
