package ui

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/dupip/dupip/tests/lab"
)

// stage is two nodes with an agent and a pod each, and the page of the first one's agent.
type stage struct {
	*lab.T
	agents []*lab.Agent
	pods   []*lab.Pod
	page   *program
	tab    *tab
}

func newStage(t *testing.T) *stage {
	l := lab.NewT(t)
	c := &stage{T: l, agents: l.Cluster(2)}
	for n, name := range []string{"web", "copy"} {
		node := c.agents[n].Node
		c.pods = append(c.pods, l.Pod(node, name, lab.PodOptions{Style: lab.Routed, Addrs: []netip.Addr{node.RoutedIPv4(5)}}))
	}
	c.page = start(t, c.agents[0].Socket)
	c.tab = open(t, c.page.url)
	return c
}

// duplicate gives the second pod an address of the first one.
func (c *stage) duplicate() netip.Addr {
	c.Helper()
	ip := c.pods[0].Addrs()[0]
	c.Do(c.pods[1].AddAddr(ip))
	return ip
}

// A conflict appears and disappears on a page that is not loaded again; what a user typed and where the focus is stays.
func TestLive(t *testing.T) {
	c := newStage(t)
	b := c.tab
	b.shows("h1", "No conflict is open")
	b.shows("main", "2 of 2 nodes have answered.")
	b.fitsPhone()
	b.mark(7)
	ip := c.duplicate()
	b.shows("h1", "1 conflict is open")
	b.shows("[role=status] .badge", "1 confirmed")
	b.shows("tbody", c.pods[0].ShortName())
	b.shows("tbody", c.pods[1].ShortName())
	b.shows("title", "1 conflict is open")
	b.tabTo("#q")
	b.key("no such pod")
	// Meanwhile both have another address in common.
	second := c.agents[0].Node.RoutedIPv4(6)
	c.Do(c.pods[0].AddAddr(second), c.pods[1].AddAddr(second))
	b.shows("h1", "2 conflicts are open")
	if got := eval[string](b, "document.activeElement.value"); got != "no such pod" {
		t.Errorf("the text in the focused field is %q", got)
	}
	b.loaded(7)
	b.key(kb.Enter)
	b.shows("main", "No such conflict.")
	b.visit(c.page.url)
	b.mark(8)
	for _, pod := range c.pods[1:] {
		c.Do(pod.DelAddr(ip), pod.DelAddr(second))
	}
	b.shows("h1", "No conflict is open")
	b.loaded(8)
	b.visit(c.page.url + "?all=1")
	b.shows("tbody", "resolved")
	b.quiet()
}

// With the keyboard alone: from the top to the conflict, to its page, to the command that ends it, and on.
func TestKeyboard(t *testing.T) {
	c := newStage(t)
	b := c.tab
	ip := c.duplicate()
	b.shows("h1", "1 conflict is open")
	b.visit(c.page.url)
	b.key(kb.Tab)
	if text := eval[string](b, "document.activeElement.innerText"); text != "Skip to the content" {
		t.Errorf("the first thing to focus is %q", text)
	}
	b.key(kb.Enter)
	if id := eval[string](b, "document.activeElement.id"); id != "main" {
		t.Errorf("the link leads to %q", id)
	}
	b.tabTo(fmt.Sprintf("tbody a[href='/explain?ip=%s']", ip))
	b.key(kb.Enter)
	b.shows("h1", ip.String())
	b.shows(".advice", "What to do")
	b.shows(".card:nth-of-type(2)", c.agents[1].Node.ShortName())
	b.shows(".timeline", "confirmed")
	b.tabTo(".advice pre")
	command := eval[string](b, "document.activeElement.innerText")
	b.key(kb.Tab)
	b.key(kb.Enter)
	b.shows(".advice .copy", "Copied")
	t.Logf("copied: %s", command)
	b.tabTo("#ip")
	b.tabTo("body") // and out of the page
	b.fitsPhone()
	// What is unfolded on a phone stays so when the page changes.
	b.size(375, 800)
	b.tabTo(".card summary")
	b.key(kb.Enter)
	b.shows(".card details dl", "announced")
	before := b.text(".card")
	eventually(t, "another age", func() error {
		if b.text(".card") == before {
			return errors.New("nothing has changed")
		}
		return nil
	})
	if !eval[bool](b, "document.querySelector('.card details').open && document.activeElement.matches('summary')") {
		t.Error("what was unfolded is folded, or has lost the focus")
	}
	b.size(1200, 800)
	for _, theme := range []string{"light", "dark"} {
		b.theme(theme)
		b.contrast()
	}
	b.quiet()
}

// What is shown stays, with a warning, while the program is away; and a page without an agent says so until it is back.
func TestAway(t *testing.T) {
	c := newStage(t)
	b := c.tab
	c.duplicate()
	b.shows("h1", "1 conflict is open")
	b.quiet()
	c.page.stop(t)
	b.shows("#stale:not([hidden])", "Not up to date: dupip does not answer.")
	b.shows("h1", "1 conflict is open")
	c.page = start(t, c.agents[0].Socket, "--port", c.page.port)
	eventually(t, "no warning", func() error {
		if eval[bool](b, "stale.hidden") {
			return nil
		}
		return errors.New(b.text("#stale"))
	})
	c.Do(c.agents[0].Stop())
	b.shows("[role=alert]", "no agent is running at "+c.agents[0].Socket)
	b.fitsPhone()
	c.Successor(c.agents[0])
	b.shows("h1", "1 conflict is open")
}
