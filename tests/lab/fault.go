package lab

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

// Fault makes the switch drop packets between nodes. Address resolution always passes, so that a fault
// in one direction does not affect the other. The zero value drops everything else.
type Fault struct {
	// From and To restrict it to packets of one node, and to one node. Nil is all of them.
	From, To *Node
	// UDP restricts it to datagrams to this port, Protocol to packets of an IP protocol.
	UDP, Protocol int
	// Percent is how many of a hundred packets are lost, at random; 0 is all of them.
	Percent int
}

// rule is the fault as an nft rule.
func (f Fault) rule() string {
	var terms []string
	if f.From != nil {
		terms = append(terms, fmt.Sprintf("iifname port%d", f.From.Number))
	}
	if f.To != nil {
		terms = append(terms, fmt.Sprintf("oifname port%d", f.To.Number))
	}
	if f.UDP != 0 {
		terms = append(terms, fmt.Sprintf("udp dport %d", f.UDP))
	}
	if f.Protocol != 0 {
		terms = append(terms, fmt.Sprintf("meta l4proto %d", f.Protocol))
	}
	if f.Percent != 0 {
		terms = append(terms, fmt.Sprintf("numgen random mod 100 < %d", f.Percent))
	}
	return strings.Join(append(terms, "counter drop"), " ")
}

// InjectFaults adds faults to the switch; heal removes them. [Node.Disconnect] unplugs a node.
func (l *Lab) InjectFaults(faults ...Fault) (heal func() error, err error) {
	var added []*Fault
	for _, f := range faults {
		added = append(added, &f)
	}
	if err := l.changeFaults(func(all []*Fault) []*Fault { return append(all, added...) }); err != nil {
		return nil, err
	}
	return func() error {
		return l.changeFaults(func(all []*Fault) []*Fault {
			return slices.DeleteFunc(all, func(f *Fault) bool { return slices.Contains(added, f) })
		})
	}, nil
}

// changeFaults replaces the switch's rules in one transaction.
func (l *Lab) changeFaults(change func([]*Fault) []*Fault) error {
	l.faultsMu.Lock()
	defer l.faultsMu.Unlock()
	changed := change(slices.Clone(l.faults))
	rules := []string{
		"table bridge faults",
		"delete table bridge faults",
		"table bridge faults {",
		"chain forward {",
		"type filter hook forward priority filter",
		"ether type arp accept",
		"icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept",
	}
	for _, f := range changed {
		rules = append(rules, f.rule())
	}
	rules = append(rules, "}", "}")
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(strings.Join(rules, "\n") + "\n")
	var output Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	err := l.hub.Exec(cmd.Start)
	if errors.Is(err, exec.ErrNotFound) {
		return errors.New("there is no nft: tests/install.sh test installs it")
	}
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return fmt.Errorf("change the faults of the switch: %w\n%s", err, output.String())
	}
	l.faults = changed
	return nil
}
