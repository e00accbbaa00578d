package page

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// maxText bounds a parameter, in bytes: a pod's name after its namespace.
const maxText = 63 + 1 + 253

// request is what a user asks for.
type request struct {
	IP   netip.Addr // of one address's page
	Text string     // what was typed: what a list is to have
	// Ended says which resolved conflicts are asked for, as the page's address does: "12h", "all", or empty for none. Since is how long
	// ago they may have ended, 0 for any time.
	Ended string
	Since time.Duration
	From  int // how many elements of the list come before
}

// All reports whether resolved conflicts are asked for, too.
func (r request) All() bool { return r.Ended != "" }

// parameters are those of each page.
var parameters = map[string][]string{
	"conflicts": {"q", "all", "since", "from"}, "explain": {"ip"}, "nodes": {"q", "from"}, "audit": {"q", "from"},
}

// parse reads the parameters of a page. It is as strict as the API.
func parse(name string, values url.Values) (r request, err error) {
	for key, given := range values {
		switch {
		case !slices.Contains(parameters[name], key):
			return r, fmt.Errorf("%q: this page has no such parameter", key)
		case len(given) > 1:
			return r, fmt.Errorf("%s: given %d times, once is possible", key, len(given))
		case len(given[0]) > maxText:
			return r, fmt.Errorf("%s: at most %d bytes are possible", key, maxText)
		}
	}
	r.Text = detector.Printable(strings.TrimSpace(values.Get("q") + values.Get("ip")))
	if r.Ended = values.Get("since"); r.Ended == "" && values.Get("all") == "1" {
		r.Ended = everything
	} else if r.Ended != "" && r.Ended != everything {
		if r.Since, err = document.ParseSince(r.Ended); err != nil {
			return r, fmt.Errorf("since=%q: %w", r.Ended, err)
		}
	}
	if text := r.Text; name == "explain" && text != "" {
		if r.IP, err = netip.ParseAddr(text); err != nil {
			return r, fmt.Errorf("%q is not an IP address", text)
		}
		r.IP = r.IP.Unmap()
	}
	if text := values.Get("from"); text != "" {
		if r.From, err = strconv.Atoi(text); err != nil || r.From < 0 {
			return r, fmt.Errorf("from=%q: must be a number", text)
		}
	}
	return r, nil
}

// everything is since= of a page with all resolved conflicts.
const everything = "all"

// period is a choice of which resolved conflicts a page has.
type period struct{ Value, Text string }

// Periods are the choices, with the one that was made.
func (r request) Periods() []period {
	all := []period{
		{"", "no resolved ones"},
		{"1h", "resolved in the last hour, too"},
		{"12h", "resolved in the last 12 hours, too"},
		{"24h", "resolved in the last 24 hours, too"},
		{"168h", "resolved in the last 7 days, too"},
		{everything, "all resolved ones, too"},
	}
	if !slices.ContainsFunc(all, func(p period) bool { return p.Value == r.Ended }) {
		all = append(all, period{r.Ended, "resolved in the last " + r.Ended + ", too"})
	}
	return all
}

// selects reports whether any of the texts has the one that is asked for.
func (r request) selects(texts ...string) bool {
	return slices.ContainsFunc(texts, func(text string) bool {
		return strings.Contains(strings.ToLower(text), strings.ToLower(r.Text))
	})
}

// selectsAddress reports whether a prefix is asked for that has the address.
func (r request) selectsAddress(ip netip.Addr) bool {
	prefix, err := netip.ParsePrefix(r.Text)
	return err == nil && prefix.Masked().Contains(ip)
}

// maxRows is how many elements of a list one page has.
const maxRows = 100

// list is a part of a list.
type list[T any] struct {
	Rows        []T
	First, Last int // of Rows, from 1
	Total       int // elements that were asked for
	Previous    int // request.From of the part before; that of the next one is Last
}

// cut returns the part of a list that is asked for.
func cut[T any](r request, all []T) list[T] {
	from := min(r.From, max(len(all)-1, 0)/maxRows*maxRows)
	to := min(from+maxRows, len(all))
	return list[T]{Rows: all[from:to], First: from + 1, Last: to, Total: len(all), Previous: max(from-maxRows, 0)}
}
