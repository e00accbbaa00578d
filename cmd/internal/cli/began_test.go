package cli

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// resolved is a conflict of two nodes' holders that began and ended that long ago.
func resolved(ip string, began, ended time.Duration, nodes ...string) document.Conflict {
	c := between(ip, holder(nodes[0], "web-0", ip, began+time.Hour), holder(nodes[1], "cart-0", ip, began))
	c.State = detector.Resolved
	c.SecondSeen, c.SuspectedAt, c.ConfirmedAt, c.ResolvedAt = ago(began), ago(began-time.Millisecond), ago(began-time.Second), ago(ended)
	return c
}

// A table with conflicts that are over says when each began, and how long it lasted. The clock of synctest begins at midnight.
func TestPrintEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		doc := []document.Conflict{
			between("10.244.7.2", holder("n1", "web-0", "10.244.7.2", time.Hour), holder("n2", "web-1", "10.244.7.2", 21*time.Second)),
			resolved("10.244.7.3", 9*time.Hour, 9*time.Hour-3500*time.Millisecond, "n1", "n2"),
			resolved("10.244.7.4", 50*time.Hour, 12*time.Hour, "n1", "n2"),
			resolved("10.244.7.5", 500*24*time.Hour, 490*24*time.Hour, "n1", "n2"),
		}
		doc[0].SecondSeen = time.Time{} // of an agent that does not say so
		printed(t, func(p *Printer) { tables{Printer: p}.conflicts(doc) }, `
IP          STATE      SINCE  BEGAN         LASTED  NODE  HOLDER
10.244.7.2  confirmed  20s    23:59:38      21s     n1    shop/web-0
                                                    n2    shop/web-1
10.244.7.3  resolved   8h     15:00:00      3.5s    n1    shop/web-0
                                                    n2    shop/cart-0
10.244.7.4  resolved   12h    Dec 29 22:00  38h     n1    shop/web-0
                                                    n2    shop/cart-0
10.244.7.5  resolved   490d   Aug 19 1998   10d     n1    shop/web-0
                                                    n2    shop/cart-0
`)
		for _, wide := range []bool{false, true} {
			p, out := printer(0)
			p.Wide = wide
			tables{Printer: p}.conflicts(doc[1:2])
			header, row, _ := strings.Cut(out.String(), "\n")
			if !strings.Contains(header, " BEGAN     LASTED  ") || !strings.Contains(row, " 15:00:00  3.5s    ") || !strings.Contains(header, "SINCE") {
				t.Errorf("wide %t:\n%s", wide, out)
			}
			tables{Printer: p}.conflicts(doc[:1])
			if strings.Count(out.String(), "BEGAN") > 1 {
				t.Errorf("wide %t, nothing is over:\n%s", wide, out)
			}
		}
		if slices.SortFunc(doc, ConflictOrders["began"]); doc[0].IP.String() != "10.244.7.5" || doc[3].IP.String() != "10.244.7.2" {
			t.Errorf("the first one to begin is %s, the last one %s", doc[0].IP, doc[3].IP)
		}
		if c := (document.Conflict{State: detector.Resolved}); BeganText(c)+Lasted(c) != "--" {
			t.Errorf("without times: began %s, lasted %s", BeganText(c), Lasted(c))
		}
	})
}

// In a narrow terminal the times give way to who had the address.
func TestEndedFits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const v6 = "fd5f:5801:f9ef:a93e:16d3:e3fc:a5ab:9d40"
		for _, test := range []struct {
			ip, first, second, header string
		}{
			{"10.244.117.201", "ip-10-0-1-17", "ip-10-0-1-18", "IP STATE SINCE BEGAN LASTED NODE HOLDER"},
			{"10.244.117.201", "payments-worker-a-zone1.example.com", "payments-worker-b-zone1.example.com", "IP STATE BEGAN NODE HOLDER"},
			{v6, "payments-worker-a-zone1.example.com", "payments-worker-b-zone1.example.com", "STATE SINCE BEGAN LASTED NODE HOLDER"}, // below the address
		} {
			p, out := printer(80)
			tables{Printer: p}.conflicts([]document.Conflict{resolved(test.ip, 50*time.Hour, 12*time.Hour, test.first, test.second)})
			header, _, _ := strings.Cut(out.String(), "\n")
			if got := strings.Join(strings.Fields(header), " "); got != test.header || !strings.Contains(out.String(), test.ip) {
				t.Errorf("of %s on %s the columns are %q, want %q:\n%s", test.ip, test.first, got, test.header, out)
			}
			fits(t, out.String())
		}
	})
}
