package vm

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// matrix is what was played under which kernel, on which kind of device.
type matrix []play

// play is one row of the table of tests/scenarios.
type play struct{ device, kernel, id, want, seen string }

var (
	tableRow   = regexp.MustCompile(`(?m)^([DQ]\d+) +(found|quiet) +(.{17})(.*)$`)
	needDevice = regexp.MustCompile(`\[(\w+)\]`)
)

// add takes the rows out of what a suite printed. pair is the device of those that name none.
func (m *matrix) add(kernel, pair, printed string) {
	for _, row := range tableRow.FindAllStringSubmatch(printed, -1) {
		device := pair
		if need := needDevice.FindStringSubmatch(row[4]); need != nil {
			device = need[1]
		}
		*m = append(*m, play{device, kernel, row[1], row[2], strings.TrimSpace(row[3])})
	}
}

// print prints a line for each device and kernel. A row that failed is in capitals in the suite's table.
func (m matrix) print(out io.Writer) {
	line := "%-11s  %-6s  %-9s  %-8s  %s\n"
	for i, group := range m.groups() {
		if i == 0 {
			fmt.Fprintf(out, line, "DEVICE", "KERNEL", "FOUND", "QUIET", "SCENARIOS")
		}
		sum := map[string][2]int{}
		var ids []string
		for _, p := range group {
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
		fmt.Fprintf(out, line, group[0].device, group[0].kernel, ofAll("found"), ofAll("quiet"), strings.Join(slices.Compact(ids), " "))
	}
}

// groups are the plays of one device and kernel each, in order.
func (m matrix) groups() (all []matrix) {
	compare := func(x, y play) int { return cmp.Or(cmp.Compare(x.device, y.device), cmp.Compare(x.kernel, y.kernel)) }
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
