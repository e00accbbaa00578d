package ui

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// tab is a tab of a Chromium of its own. It records what went wrong, and where requests went.
type tab struct {
	testing.TB
	ctx context.Context

	mu       sync.Mutex
	problems []string
}

// open starts Chromium with a page.
func open(t testing.TB, address string) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, // which root cannot have
		// Nothing outside of this machine has an address, and one name has an address of this machine.
		chromedp.Flag("host-resolver-rules", "MAP rebound.example 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"))
	ctx, cancel := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	t.Cleanup(cancel)
	b := &tab{TB: t}
	b.ctx, cancel = chromedp.NewContext(ctx, chromedp.WithErrorf(t.Logf), chromedp.WithListener(b.record))
	t.Cleanup(cancel)
	b.do()
	call(b, network.Enable, network.EnableParams{})
	call(b, log.Enable, cdp.Empty{})
	b.size(1200, 800)
	b.visit(address)
	return b
}

func (b *tab) record(event any) {
	problem := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		problem = fmt.Sprintf("exception: %+v", e.ExceptionDetails)
	case *runtime.EventConsoleAPICalled:
		problem = fmt.Sprintf("console: %s", e.Type)
	case *log.EventEntryAdded: // violations of the policy, too
		problem = fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL)
	case *network.EventRequestWillBeSent:
		if u, err := url.Parse(e.Request.URL); err != nil || u.Scheme != "data" && u.Hostname() != "127.0.0.1" {
			problem = "a request to " + e.Request.URL
		}
	}
	if problem != "" {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.problems = append(b.problems, problem)
	}
}

// wrong returns what went wrong since the last call.
func (b *tab) wrong() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := strings.Join(b.problems, "\n")
	b.problems = nil
	return all
}

// quiet fails the test if anything went wrong.
func (b *tab) quiet() {
	b.Helper()
	if wrong := b.wrong(); wrong != "" {
		b.Errorf("the browser reports:\n%s", wrong)
	}
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.Fatal(err)
	}
}

func call[P, R any](b *tab, command cdp.Command[P, R], params P) {
	b.Helper()
	if _, err := chromedp.Call(b.ctx, command, params); err != nil {
		b.Fatal(err)
	}
}

func (b *tab) visit(address string) {
	b.Helper()
	b.do(chromedp.Navigate(address))
}

func (b *tab) size(width, height int64) {
	b.Helper()
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 500})
}

// theme is "light" or "dark".
func (b *tab) theme(theme string) {
	b.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}})
}

// eval returns what an expression in JavaScript is.
func eval[T any](b *tab, expression string) T {
	b.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.Fatalf("%s: %v", expression, err)
	}
	return value
}

// text is what a reader sees in the first element that a selector finds.
func (b *tab) text(selector string) string {
	b.Helper()
	return strings.TrimSpace(eval[string](b, fmt.Sprintf("document.querySelector(%q)?.innerText ?? ''", selector)))
}

// shows waits until an element has a text.
func (b *tab) shows(selector, text string) {
	b.Helper()
	eventually(b.TB, fmt.Sprintf("%q in %s", text, selector), func() error {
		if got := b.text(selector); !strings.Contains(got, text) {
			return fmt.Errorf("it has %q", got)
		}
		return nil
	})
}

// mark marks the page with a number, which is lost when it is loaded again; loaded checks that it was not.
func (b *tab) mark(n int) { b.Helper(); eval[int](b, fmt.Sprintf("window.mark = %d", n)) }

func (b *tab) loaded(n int) {
	b.Helper()
	if got := eval[int](b, "window.mark ?? 0"); got != n {
		b.Errorf("the page was loaded again: its mark is %d, not %d", got, n)
	}
}

// key presses a key.
func (b *tab) key(key string) {
	b.Helper()
	b.do(chromedp.KeyEvent(key))
}

// tabTo presses Tab until an element is focused that a selector finds. Each on the way has to show that it is.
func (b *tab) tabTo(selector string) {
	b.Helper()
	for range 40 {
		b.key(kb.Tab)
		if eval[bool](b, fmt.Sprintf("document.activeElement.matches(%q)", selector)) {
			return
		}
		if !eval[bool](b, "document.activeElement === document.body || getComputedStyle(document.activeElement).outlineStyle !== 'none'") {
			b.Errorf("it is not visible that this is focused: %s", eval[string](b, "document.activeElement.outerHTML"))
		}
	}
	b.Fatalf("%s is out of reach", selector)
}

// fitsPhone checks that a page needs no scrolling sideways on a phone.
func (b *tab) fitsPhone() {
	b.Helper()
	b.size(375, 800)
	if widest := eval[string](b, `[...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1 &&
		getComputedStyle(e).position !== 'absolute').map(e => e.outerHTML.slice(0, 80)).join('\n')`); widest != "" {
		b.Errorf("%s is wider than a phone:\n%s", eval[string](b, "location.href"), widest)
	}
	if width := eval[int](b, "document.documentElement.scrollWidth"); width > 375 {
		b.Errorf("%s has a width of %d", eval[string](b, "location.href"), width)
	}
	b.size(1200, 800)
}

// contrast checks that all text can be read: WCAG 2.2 wants 4.5.
func (b *tab) contrast() {
	b.Helper()
	weak := eval[string](b, `(() => {
		const rgb = c => c.match(/[\d.]+/g).map(Number);
		const light = ([r, g, b]) => [r, g, b].map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).
			reduce((sum, v, n) => sum + v * [0.2126, 0.7152, 0.0722][n], 0);
		const ground = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
		return [...document.querySelectorAll('body *')].filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())).map(e => {
			const [high, low] = [light(rgb(getComputedStyle(e).color)), light(ground(e))].sort((a, b) => b - a);
			return [(high + 0.05) / (low + 0.05), e.outerHTML.slice(0, 80)];
		}).filter(([ratio]) => ratio < 4.5).slice(0, 10).map(String).join('\n');
	})()`)
	if weak != "" {
		b.Errorf("%s is hard to read:\n%s", eval[string](b, "location.href"), weak)
	}
}
