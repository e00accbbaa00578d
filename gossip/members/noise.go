package members

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

const (
	// maxLine is as much of a line as is kept: others can make them long.
	maxLine = 300
	// A kind of trouble is logged once in sayAgain, and is a problem for recent.
	sayAgain = 10 * time.Minute
	recent   = 5 * time.Minute
)

// noise takes the lines that memberlist logs. They are the only word of some troubles, so
// they are counted by kind; what is normal at times goes to debug, and no kind is logged
// aloud more than once in a while.
type noise struct {
	log     *slog.Logger
	drops   *drops
	trouble *trouble

	mu    sync.Mutex
	kinds [dropCount + 1]kindNoise // by drop, the last of all others
}

// kindNoise is what was heard of one kind.
type kindNoise struct {
	said   time.Time
	unsaid int
	at     time.Time // the latest
	recent int       // since the last time without any
	from   string
}

func newNoise(log *slog.Logger, drops *drops, trouble *trouble) *noise {
	return &noise{log: log, drops: drops, trouble: trouble}
}

// Of the lines of memberlist v0.7.0. The first that a line contains counts.
var lines = []struct {
	part  string
	kind  drop
	aloud bool
}{
	// Counted where it is refused.
	{part: errStreaming.Error()},
	{part: errStill.Error()},
	// Normal when nodes die, start again or are slow; or told by other means.
	{part: "memberlist: Refuting a"},
	{part: "memberlist: Got ping for unexpected node"},
	{part: "memberlist: Push/Pull with"},
	{part: "memberlist: Failed to send"},
	{part: "memberlist: Failed fallback TCP ping"},
	{part: "memberlist: Failed to forward ack"},
	{part: "memberlist: ignoring alive message for"},
	{part: "memberlist: Binding to public address"},
	{part: "memberlist: Was able to connect to"},
	{part: "memberlist: failed to receive: EOF"},
	// What is wrong with the gossip of others.
	{"unacceptable label", dropLabel, true},
	{"memberlist: Decrypt packet failed", dropKey, true},
	{"no installed keys could decrypt", dropKey, true},
	{"remote state is not encrypted", dropKey, true},
	{"remote state is encrypted and encryption is not configured", dropKey, true},
	{"handler queue full", dropFull, true},
	{"Failed to decode", dropMalformed, true},
	{"not supported", dropMalformed, true},
	{"truncated", dropMalformed, true},
	{"missing message type", dropMalformed, true},
	{"label header", dropMalformed, true},
	{"Failed to decompress", dropMalformed, true},
	{"invalid checksum", dropMalformed, true},
	{"invalid msgType", dropMalformed, true},
	{"Failed to read remote state", dropMalformed, true},
	{"Failed to receive user message", dropMalformed, true},
	{"failed to receive", dropMalformed, true},
}

// Write implements io.Writer; log.Logger writes a line at a time.
func (n *noise) Write(line []byte) (int, error) {
	size := len(line)
	text := string(bytes.TrimSpace(line[:min(size, maxLine)]))
	level, text, _ := strings.Cut(strings.TrimPrefix(text, "["), "] ")
	n.trouble.hear(text, time.Now())
	if level == "WARN" || level == "ERR" || level == "ERROR" {
		n.warned(text, sender(line))
		return size, nil
	}
	n.log.Debug(text)
	return size, nil
}

func (n *noise) warned(text, from string) {
	kind, aloud := dropCount, true
	for _, l := range lines {
		if strings.Contains(text, l.part) {
			kind, aloud = l.kind, l.aloud
			break
		}
	}
	if !aloud {
		n.log.Debug(text)
		return
	}
	if kind < dropCount {
		n.drops.add(kind)
	}
	now := time.Now()
	n.mu.Lock()
	k := &n.kinds[kind]
	if now.Sub(k.at) > recent {
		k.recent = 0
	}
	k.at, k.from = now, from
	k.recent++
	level, unsaid := slog.LevelDebug, k.unsaid
	if now.Sub(k.said) > sayAgain {
		level, k.said, k.unsaid = slog.LevelWarn, now, 0
	} else {
		k.unsaid++
	}
	n.mu.Unlock()
	n.log.Log(context.Background(), level, "gossip: "+text, "suppressed", unsaid)
}

// sender is whom a line is about: memberlist ends it by from=ADDRESS. What comes before may
// be of others' making.
func sender(line []byte) string {
	const mark = "from="
	at := bytes.LastIndex(line, []byte(mark))
	if at < 0 {
		return "an unknown address"
	}
	from, _, _ := bytes.Cut(bytes.TrimSpace(line[at+len(mark):]), []byte(" "))
	return string(from[:min(len(from), 64)])
}

// problems are clauses for people.
func (n *noise) problems(now time.Time) (all []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	say := func(kind drop, format string) {
		if k := n.kinds[kind]; k.recent > 0 && now.Sub(k.at) <= recent {
			all = append(all, fmt.Sprintf(format, k.recent, k.from))
		}
	}
	say(dropKey, "%d messages that none of the keys decrypts, the last from %s: give all agents the same --gossip-key-file")
	say(dropLabel, "%d messages of another cluster, the last from %s: give all agents the same --cluster, or keep them apart")
	say(dropMalformed, "%d messages that cannot be read, the last from %s: does it have a --gossip-key-file, or is it no agent?")
	say(dropFull, "%d messages arrived faster than they were processed, the last from %s")
	return all
}
