package search

import (
	"slices"
	"strings"
)

// Shrink returns a plan that is as short as can be and breaks the same law. It plays at most so many worlds.
func Shrink(p Plan, most int) Plan {
	law := lawOf(Play(p, nil))
	if law == "" {
		return p
	}
	breaks := func(less Plan) bool {
		most--
		return most >= 0 && lawOf(Play(less, nil)) == law
	}
	for shorter := true; shorter && most > 0; {
		shorter = false
		// First many events at once, then one by one.
		for size := max(len(p.Events)/2, 1); ; size /= 2 {
			for from := 0; from < len(p.Events); {
				less := p
				less.Events = slices.Delete(slices.Clone(p.Events), from, min(from+size, len(p.Events)))
				if breaks(less) {
					p, shorter = less, true
				} else {
					from += size
				}
			}
			if size <= 1 {
				break
			}
		}
		for _, simpler := range []func(*Plan){
			func(p *Plan) { p.Nodes-- },
			func(p *Plan) { p.Reporter = false },
			func(p *Plan) { p.Next = nil },
		} {
			for less := p; ; {
				simpler(&less)
				if less.Nodes < 1 || less.String() == p.String() || !breaks(less) {
					break
				}
				p, shorter = less, true
			}
		}
	}
	return p
}

// lawOf is the first law that was broken, empty if none was.
func lawOf(r Result) string {
	if len(r.Broken) == 0 {
		return ""
	}
	_, law, _ := strings.Cut(r.Broken[0], ": ")
	law, _, _ = strings.Cut(law, ": ")
	return law
}
