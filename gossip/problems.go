package gossip

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode"
)

const (
	// lookEvery is how often problems are looked for. One that is there at a single look is not worth a line.
	lookEvery = 10 * time.Second
	// restsFor is how long a problem that was logged must be away to be logged as a new one.
	restsFor = 10 * time.Minute
	// maxProblems bounds the problems that are remembered.
	maxProblems = 256
)

// problemLog is the problems that are in the log, for those who read nothing else, by gist.
type problemLog map[string]*loggedProblem

// loggedProblem is one problem, whatever its figures are.
type loggedProblem struct {
	seen         time.Time
	logged, over bool
}

// logProblems logs the problems of [Gossip.Status] as they come and go, until ctx ends.
func (g *Gossip) logProblems(ctx context.Context) {
	known := make(problemLog)
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		began, over := known.look(g.Status().Problems, time.Now())
		for _, problem := range began {
			g.log.Warn("gossip: " + problem)
		}
		if over {
			g.log.Info("gossip: all logged problems are over")
		}
	}
}

// look notes the problems that there are now. It returns those to log, and whether the last of those logged is over.
func (known problemLog) look(problems []string, now time.Time) (began []string, over bool) {
	for _, problem := range problems {
		k := known[gist(problem)]
		switch {
		case k == nil && len(known) < maxProblems:
			known[gist(problem)] = &loggedProblem{seen: now}
		case k == nil:
		case !k.logged:
			k.logged = true
			began = append(began, problem)
			fallthrough
		default:
			k.seen, k.over = now, false
		}
	}
	open := false
	for g, k := range known {
		switch {
		case k.seen.Equal(now):
			open = open || k.logged
		case !k.logged || now.Sub(k.seen) >= restsFor:
			delete(known, g)
		case !k.over:
			k.over, over = true, true
		}
	}
	return began, over && !open
}

// gist is a problem without its figures and without the reason behind the colon: both change from one look to the
// next.
func gist(problem string) string {
	problem, _, _ = strings.Cut(problem, ": ")
	return strings.Join(slices.DeleteFunc(strings.Fields(problem), func(word string) bool {
		return !strings.ContainsFunc(word, unicode.IsLetter)
	}), " ")
}
