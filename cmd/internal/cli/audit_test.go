package cli

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

const podsStore = "/var/lib/cni/networks/pods"

func found(kind, node, ip string) document.Finding {
	f := document.Finding{
		Kind: kind, IP: netip.MustParseAddr(ip), CNINetwork: "pods", Book: "host-local", Store: podsStore, Since: ago(90 * time.Second),
		Holder: document.Holder{
			Node: node, Interface: "veth7", Netns: "cni-7", Pod: &document.Pod{Namespace: "shop", Name: "web-0", UID: "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3d0001"}, Given: detector.GivenYes,
		},
		Sandbox: strings.Repeat("a1", 32),
	}
	switch kind {
	case "mismatched":
		f.ReservedFor, f.ReservedPod = strings.Repeat("b2", 32), &document.Pod{Namespace: "shop", Name: "web-1"}
	case "unheld":
		f.Interface, f.Netns, f.Pod, f.Sandbox, f.Given, f.ReservedFor = "", "", nil, "", detector.GivenUnknown, strings.Repeat("c3", 32)
	}
	return f
}

// What was asked for and is not there is no agreement of all books.
func TestPrintNoSuchFinding(t *testing.T) {
	p, out := printer(80)
	p.Selected = true
	p.Audit(document.Audit{At: time.Now(), Verdict: document.AuditAgrees})
	p.Conflicts(document.Conflicts{})
	p.Bindings(document.Bindings{})
	if text := out.String(); !strings.HasPrefix(text, "No such finding.\n") || !strings.HasSuffix(text, "No such conflict.\nNo such address seen.\n") {
		t.Errorf("%q", text)
	}
}

func (c auditCase) doc() document.Audit {
	left := 93.7
	a := document.Audit{
		Node: "n1", At: time.Now(), Books: []document.BookStatus{{
			Kind: "host-local", CNINetwork: "pods", Store: podsStore, Ranges: []string{"10.1.2.1-10.1.2.254"}, Reserved: 16, LeftPercent: &left,
		}},
	}
	if a.Verdict = document.AuditAgrees; c.change != nil {
		c.change(&a)
	}
	if len(a.Findings) > 0 {
		a.Verdict = document.AuditFindings
	}
	return a
}

type auditCase struct {
	change func(a *document.Audit)
	wide   bool
	want   string
}

func with(findings ...func() document.Finding) func(a *document.Audit) {
	return func(a *document.Audit) {
		for _, f := range findings {
			a.Findings = append(a.Findings, f())
		}
	}
}

func one(kind string, changes ...func(f *document.Finding)) func() document.Finding {
	return func() document.Finding {
		f := found(kind, "n1", "10.1.2.5")
		for _, c := range changes {
			c(&f)
		}
		return f
	}
}

func byHand(f *document.Finding) { f.Given = detector.GivenNo }
func next(f *document.Finding)   { f.IP = f.IP.Next() }

const podsBook = `Book: host-local, network pods, 16 addresses reserved of 10.1.2.1-10.1.2.254,
  93% left.
`

const (
	reserveAgain = `
  - Reserve the address for shop/web-0 again, on node n1:
    mkdir -p /var/lib/cni/networks/pods && flock \
      /var/lib/cni/networks/pods/lock sh -c 'set -C; printf \
      "a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1\r\neth0" \
      >/var/lib/cni/networks/pods/10.1.2.5'
  - If you prefer to replace the pod: Remove shop/web-0: its successor gets an
    address with a reservation (this cuts the pod shop/web-0, which ends;
    without a controller it does not come back):
` + deleteWeb0
	deleteWeb0 = `    echo \
      '{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"9b1deb4d-3b7d-4bad-9bdd-2b0d7b3d0001"}}' \
      | kubectl delete --raw /api/v1/namespaces/shop/pods/web-0 -f -
`
)

func TestPrintAudit(t *testing.T) {
	for name, test := range map[string]auditCase{
		"no finding": {nil, false, `
No finding: books and wire agree.
` + podsBook},
		"unreserved": {with(one("unreserved")), false, `
IP        FINDING     SINCE  HOLDER      RESERVED FOR
10.1.2.5  unreserved  90s    shop/web-0  -

What to do:
shop/web-0 has 10.1.2.5, which host-local has not reserved. The next pod may get
  it.` + reserveAgain + `
` + podsBook},
		"misrouted": {with(one("misrouted", func(f *document.Finding) {
			f.Sandbox, f.Store, f.Book, f.CNINetwork = "", "", "routes", ""
			f.HeldBy, f.Through, f.End = "n3", []string{"n2"}, document.EndsNowhere
		})), false, `
IP        FINDING    SINCE  HOLDER            RESERVED FOR
10.1.2.5  misrouted  90s    shop/web-0 on n3  -

What to do:
Packets from node n1 to 10.1.2.5 go to node n2, which has no route for them.
  shop/web-0 on node n3 has the address, and does not get them.
  - Look which route they take, on node n1:
    ip route get fibmatch 10.1.2.5
  - If the audit has another finding about one of these nodes, such as
    misbooked, deleted or overlapping, repair that first: it is the cause.
  - If not, look for whom IPAM has the address: "dupip explain 10.1.2.5" says
    so, or the IPAM's own tool. If it is for nobody, or for node n2, another pod
    may get it: look whether the network plugin of node n3 has the right node
    name.
  - If it is for node n3: Look why what writes the routes does not know that,
    such as calico-node, flanneld or a BGP daemon: its log says so, on node n1.

` + podsBook},
		"mismatched": {with(one("mismatched")), false, `
IP        FINDING     SINCE  HOLDER      RESERVED FOR
10.1.2.5  mismatched  90s    shop/web-0  shop/web-1

What to do:
shop/web-0 has 10.1.2.5, which host-local has reserved for shop/web-1. They
  collide as soon as both use it.
  - Remove shop/web-0: its successor gets an address with a reservation (this
    cuts the pod shop/web-0, which ends; without a controller it does not come
    back):
` + deleteWeb0 + `
` + podsBook},
		"unheld": {with(one("unheld")), false, `
IP        FINDING  SINCE  HOLDER  RESERVED FOR
10.1.2.5  unheld   90s    -       c3c3c3c3c3c3c

What to do:
10.1.2.5 is reserved for sandbox c3c3c3c3c3c3c, which does not exist any more.
  The range has one address less.
  - If no other runtime has that container: Free the address, on node n1:
    flock /var/lib/cni/networks/pods/lock sh -c 'grep -q ^c3c3c3c3c3c3c \
      /var/lib/cni/networks/pods/10.1.2.5 && rm \
      /var/lib/cni/networks/pods/10.1.2.5'

` + podsBook},
		"unheld, and a pod has it": {with(one("unheld", func(f *document.Finding) {
			f.Interface, f.Pod = "veth7", &document.Pod{Namespace: "shop", Name: "web-0"}
		})), false, `
IP        FINDING  SINCE  HOLDER      RESERVED FOR
10.1.2.5  unheld   90s    shop/web-0  c3c3c3c3c3c3c

What to do:
10.1.2.5 is reserved for sandbox c3c3c3c3c3c3c, which does not exist any more,
  and shop/web-0 has it. Do not free it while shop/web-0 runs: the next pod
  would get it.

` + podsBook},
		"several of a kind": {with(one("unreserved"), one("unreserved", byHand), one("unreserved", next), one("unreserved"), one("unheld"), one("unheld", next), one("unheld", next)), false, `
IP        FINDING     SINCE  HOLDER      RESERVED FOR
10.1.2.5  unreserved  90s    shop/web-0  -
10.1.2.5  unreserved  90s    shop/web-0  -
10.1.2.6  unreserved  90s    shop/web-0  -
10.1.2.5  unreserved  90s    shop/web-0  -
10.1.2.5  unheld      90s    -           c3c3c3c3c3c3c
10.1.2.6  unheld      90s    -           c3c3c3c3c3c3c
10.1.2.6  unheld      90s    -           c3c3c3c3c3c3c

What to do:
shop/web-0 has 10.1.2.5, which host-local has not reserved. The next pod may get
  it. Likewise: 10.1.2.6.` + reserveAgain + `shop/web-0 has 10.1.2.5, which no network plugin gave it. It was probably taken
  by hand, and host-local may give it to another pod.
  - Take the address from shop/web-0, or remove the pod (this cuts the pod
    shop/web-0, which ends; without a controller it does not come back):
` + deleteWeb0 + `10.1.2.5 is reserved for sandbox c3c3c3c3c3c3c, which does not exist any more.
  The range has one address less. Likewise: 10.1.2.6.
  - If no other runtime has that container: Free the address, on node n1:
    flock /var/lib/cni/networks/pods/lock sh -c 'grep -q ^c3c3c3c3c3c3c \
      /var/lib/cni/networks/pods/10.1.2.5 && rm \
      /var/lib/cni/networks/pods/10.1.2.5'

` + podsBook},
		"several nodes": {with(
			one("unheld"), func() document.Finding { return found("mismatched", "n2", "fd00::5") },
		), false, `
NODE  IP        FINDING     SINCE  HOLDER      RESERVED FOR
n1    10.1.2.5  unheld      90s    -           c3c3c3c3c3c3c
n2    fd00::5   mismatched  90s    shop/web-0  shop/web-1

What to do:
shop/web-0 has fd00::5, which host-local has reserved for shop/web-1. They
  collide as soon as both use it.
  - Remove shop/web-0: its successor gets an address with a reservation (this
    cuts the pod shop/web-0, which ends; without a controller it does not come
    back):
` + deleteWeb0 + `10.1.2.5 is reserved for sandbox c3c3c3c3c3c3c, which does not exist any more.
  The range has one address less.
  - If no other runtime has that container: Free the address, on node n1:
    flock /var/lib/cni/networks/pods/lock sh -c 'grep -q ^c3c3c3c3c3c3c \
      /var/lib/cni/networks/pods/10.1.2.5 && rm \
      /var/lib/cni/networks/pods/10.1.2.5'

` + podsBook},
		"wide": {with(one("unheld")), true, `
IP        FINDING  SINCE  HOLDER  RESERVED FOR                                                      BOOK        CNI NETWORK  STORE                       INTERFACE  NETNS  SANDBOX
10.1.2.5  unheld   90s    -       c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3  host-local  pods         /var/lib/cni/networks/pods  -          -      -

What to do:
10.1.2.5 is reserved for sandbox c3c3c3c3c3c3c, which does not exist any more.
  The range has one address less.
  - If no other runtime has that container: Free the address, on node n1:
    flock /var/lib/cni/networks/pods/lock sh -c 'grep -q ^c3c3c3c3c3c3c \
      /var/lib/cni/networks/pods/10.1.2.5 && rm \
      /var/lib/cni/networks/pods/10.1.2.5'

` + podsBook},
		"not all is checked, and problems": {func(a *document.Audit) {
			a.Verdict = document.AuditPartly
			a.Books, a.Error = []document.BookStatus{{Kind: "host-local", CNINetwork: "pods", Error: "it is a pipe"}, {Kind: "host-local", CNINetwork: "cbr0", Reserved: 1}}, "00-a.conf: it is a link"
			a.Unchecked = []string{"some networks: 00-a.conf: it is a link", "network pods: it is a pipe", "network cbr0: its range is not known, so only lost reservations that the agent has seen are found"}
			a.Coverage = document.Coverage{Asked: 3, Missing: []string{"n2"}, Omitted: 4, Partial: true}
		}, false, `
No finding, but the check is not complete:
Book: host-local, network cbr0, 1 address reserved of no known range.
Not checked: some networks: 00-a.conf: it is a link.
Not checked: network pods: it is a pipe.
Not checked: network cbr0: its range is not known, so only lost reservations
  that the agent has seen are found.
1 of 3 nodes did not answer: n2; their findings are missing.
4 findings did not fit into the answers: give one --ip or one --node.
`},
		"no books, and alone": {func(a *document.Audit) {
			a.Verdict, a.Books, a.Alone = document.AuditNothing, nil, true
			a.Unchecked = []string{"everything: no network in /etc/cni/net.d (--cni-conf-dir) has its addresses from host-local or Azure CNS, the only books that an agent reads"}
		}, false, `
No finding, because nothing was checked:
Not checked: everything: no network in /etc/cni/net.d (--cni-conf-dir) has its
  addresses from host-local or Azure CNS, the only books that an agent reads.
This agent is alone: it was started without --join and --bind and knows its own
node only.
`},
		"a finding beside what is not checked": {func(a *document.Audit) {
			a.Findings, a.Unchecked = []document.Finding{found("unreserved", "n1", "10.1.2.5")}, []string{"network k8s: it has no book"}
		}, true, `
IP        FINDING     SINCE  HOLDER      RESERVED FOR  BOOK        CNI NETWORK  STORE                       INTERFACE  NETNS  SANDBOX
10.1.2.5  unreserved  90s    shop/web-0  -             host-local  pods         /var/lib/cni/networks/pods  veth7      cni-7  ` + strings.Repeat("a1", 32) + `

What to do:
shop/web-0 has 10.1.2.5, which host-local has not reserved. The next pod may get
  it.` + reserveAgain + `
` + podsBook + `Not checked: network k8s: it has no book.
`},
		"an agent that gives no verdict": {func(a *document.Audit) { a.Books, a.At, a.Verdict = nil, time.Time{}, "" }, false, `
No finding, but the check is not complete:
`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, out := printer(80)
				p.Wide = test.wide
				p.Audit(test.doc())
				if got, want := out.String(), strings.TrimPrefix(test.want, "\n"); got != want {
					t.Errorf("got:\n%s\nwant:\n%s", got, want)
				}
				fitsButCommands(t, out.String(), test.wide)
			})
		})
	}
}

// fitsButCommands checks the length of lines that are not one word of a command and, if it is wide, not of a table.
func fitsButCommands(t *testing.T, text string, wide bool) {
	t.Helper()
	for line := range strings.Lines(text) {
		word := len(strings.Fields(strings.TrimSuffix(line, "\\\n"))) == 1 // the id of a sandbox
		if !word && (!wide || strings.HasPrefix(line, "  ")) {
			fits(t, line)
		}
	}
}

// Names of any length leave room on a line of 80 columns.
func TestLongFindingsFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a document.Audit
		for n, kind := range []string{"mismatched", "unreserved", "unheld"} {
			f := found(kind, fmt.Sprintf("ip-10-0-1-%d.eu-central-1.compute.internal", n), "fd5f:5801:f9ef:a93e:16d3:e3fc:a5ab:9d40")
			long := &document.Pod{Namespace: "payments-production", Name: "payments-reconciliation-worker-6f4c9d7b58-x2x4z"}
			f.Pod, f.ReservedPod = long, long
			a.Findings = append(a.Findings, f)
		}
		p, out := printer(80)
		p.Audit(a)
		fitsButCommands(t, out.String(), false)
		if strings.Count(out.String(), "fd5f:5801:f9ef:a93e:16d3:e3fc:a5ab:9d40") < 6 {
			t.Errorf("addresses are not whole:\n%s", out.String())
		}
	})
}
