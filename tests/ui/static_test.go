package ui

import (
	"bytes"
	"cmp"
	"flag"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

var screenshots = flag.String("screenshots", "", "folder to write the pictures of README.md to")

var views = []string{"", "?q=nothing", "?all=1&from=100", "explain?ip=10.244.1.11", "explain", "nodes", "nodes?from=4900", "audit", "?bad=1"}

// Every view of a large cluster, on a screen and on a phone, in both themes.
func TestViews(t *testing.T) {
	page := start(t, serveDocuments(t, cluster(5000, 500)))
	b := open(t, page.url)
	for _, view := range views {
		b.visit(page.url + view)
		grounds := make(map[string]bool)
		for _, theme := range []string{"light", "dark"} {
			b.theme(theme)
			b.contrast()
			grounds[eval[string](b, "getComputedStyle(document.body).backgroundColor")] = true
		}
		if len(grounds) != 2 {
			t.Errorf("%s looks the same in both themes: %v", view, grounds)
		}
		b.fitsPhone()
		if n := eval[int](b, "document.querySelectorAll('h1').length"); n != 1 {
			t.Errorf("%s has %d headings of the first level", view, n)
		}
		if rows := eval[int](b, "document.querySelectorAll('tbody th').length"); rows > 100 {
			t.Errorf("%s has %d rows", view, rows)
		}
		if view != "?bad=1" {
			b.quiet()
		} else if wrong := b.wrong(); !strings.Contains(wrong, "400 (Bad Request)") {
			t.Errorf("a parameter that does not exist: %s", wrong)
		}
	}
	b.visit(page.url)
	b.shows("main", "b-<b>bold</b>")
}

// Without its script the page has the same contents, filters and parts.
func TestWithoutScript(t *testing.T) {
	page := start(t, serveDocuments(t, cluster(5000, 500)))
	b := open(t, page.url)
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	b.visit(page.url + "nodes")
	b.tabTo("#q")
	b.key("worker-1" + kb.Enter)
	b.shows("tbody", "worker-1000")
	b.shows(".pages", "1 to 100 of 1000")
	b.do(chromedp.Click(chromedp.CSS("a[rel=next]")))
	b.shows(".pages", "101 to 200 of 1000")
	b.visit(page.url)
	b.tabTo("a[href='/explain?ip=10.244.1.11']")
	b.key(kb.Enter)
	b.shows(".advice", "Remove shop/search-0 on worker-0007, which no network plugin gave the address")
	b.shows(".advice", "kubectl delete --raw /api/v1/namespaces/shop/pods/search-0 ")
	if eval[bool](b, "document.documentElement.classList.contains('live')") {
		t.Error("the script ran")
	}
	b.quiet()
}

// A name of another site that resolves to this machine does not get the page.
func TestForeignName(t *testing.T) {
	page := start(t, serveDocuments(t, cluster(5, 1)))
	b := open(t, page.url)
	b.visit("http://rebound.example:" + page.port + "/")
	if text := b.text("body"); text != "this is for localhost, 127.0.0.1 and [::1] only" {
		t.Errorf("it gets: %s", text)
	}
}

// The pictures of README.md are small.
func TestScreenshots(t *testing.T) {
	folder := cmp.Or(*screenshots, t.TempDir())
	page := start(t, serveDocuments(t, cluster(120, 2)))
	b := open(t, page.url)
	for _, picture := range []struct {
		name, view, theme string
		width, height     int64
	}{
		{"conflicts", "", "light", 1200, 740},
		{"address", "explain?ip=10.244.1.11", "light", 1200, 1100},
		{"address-dark", "explain?ip=10.244.1.11", "dark", 1200, 1100},
		{"phone", "explain?ip=10.244.1.11", "light", 375, 1000},
		{"nodes-dark", "nodes", "dark", 1200, 600},
	} {
		b.theme(picture.theme)
		b.size(picture.width, picture.height)
		b.visit(page.url + picture.view)
		data, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
		if err != nil {
			t.Fatal(err)
		}
		if data = small(t, data); len(data) > 100_000 {
			t.Errorf("%s has %d bytes", picture.name, len(data))
		}
		if err := os.WriteFile(filepath.Join(folder, picture.name+".png"), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// small is a picture with the most frequent colours only.
func small(t *testing.T, data []byte) []byte {
	t.Helper()
	full, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	count := make(map[color.Color]int)
	for y := range full.Bounds().Dy() {
		for x := range full.Bounds().Dx() {
			count[full.At(x, y)]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(count), func(a, b color.Color) int { return cmp.Compare(count[b], count[a]) })
	few := image.NewPaletted(full.Bounds(), colours[:min(len(colours), 256)])
	draw.Draw(few, few.Bounds(), full, image.Point{}, draw.Src)
	var out bytes.Buffer
	encoder := png.Encoder{CompressionLevel: png.BestCompression}
	if err := encoder.Encode(&out, few); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
