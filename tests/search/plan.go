package search

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Plan is what happens in a world. Its text is a line of settings, and one for each event.
type Plan struct {
	// Seed is that of all that is left to chance while the plan is played.
	Seed uint64
	// Nodes are n1, n2 and so on.
	Nodes int
	// Reporter: there is one more member, which conflicts are reported to.
	Reporter bool
	// Next are the nodes whose agents send as a next version may.
	Next   []string
	Events []Event
}

// Event is one event: what happens to a machine, or "-" for the network, and the arguments of the verb.
//
//	12.3s n1 pod a 10.0.0.1 slow=0.8s quiet given=yes
//	    a pod begins on the machine, and has the address. It answers that much later, says nothing by itself, and its network plugin
//	    gave it the address, or did not. l3: its interface has no layer 2. vm=db: it has the labels of that virtual machine
//	20s n1 drop a     it has the address no more, and its kernel says so
//	21s n1 take a     it has it again
//	25s n1 mute a 3s  it answers nothing for so long
//	30s n1 vanish a   it is gone, and nobody says so
//	31s n1 end a      it is gone with its interface
//	40s n1 stall 0.4s    its agent gets no time for so long
//	41s n1 freeze 30s    the machine is suspended
//	50s n1 kill          its agent is killed; stop ends it in order
//	60s n1 start         an agent is started; "start fresh" without the state
//	70s n1 reboot 20s    it is booted anew
//	80s - loss 0.1 20s   that share of all packets between machines is lost; copy doubles them, late delays them by up to a second
//	90s n1 deaf n2 10s   what n1 sends does not reach n2
//	95s n1 cut n2,n3 20s the machines on the left and on the right reach each other no more
//	99s n2 namesake n1   the machine has the other one's name from its next boot on
//
// A machine with one of these events lies, from the beginning. It has a real agent, and what that says and hears is changed. What holds
// for its pods is not checked, and nothing that happens to it is an excuse.
//
//	20s n3 claim 10.0.0.1 answers=late as=data age=3h holders=2 pod=a
//	    it says that holders of its own have the address, which do not exist; one of them is pod a. Probe requests about them it answers
//	    at "once", "late", by "turns", with "wild" values, "gone", "unanswered", "forwards", "refused", "never", or "any" of these
//	30s n3 retract 10.0.0.1   it withdraws them
//	40s n3 keep hides 20s     as a keeper it is "silent", acknowledges and keeps nothing ("deaf"), "hides" other holders, "invents" some,
//	                          or "any" of these
//	50s n3 ask 20s            it sends probe requests about all holders, with invented holders of its own
//	60s n3 forge 20s          it says of others' holders that they are gone or answer, and acknowledges what it did not get
//	70s n3 flood 2s           it sends all kinds of messages, with anything in them
//	75s n3 namesake n1 boot   it has the other one's boot id, too: an agent that has seen the other one first believes that one. Others need not
//	80s n3 tell given         it lies to commands from then on: see telling
type Event struct {
	At   time.Duration
	Who  string
	Verb string
	Args []string
}

// String is the line of the event.
func (e Event) String() string {
	return strings.Join(append([]string{seconds(e.At), e.Who, e.Verb}, e.Args...), " ")
}

func seconds(d time.Duration) string {
	return strconv.FormatInt(int64(d/time.Second), 10) + strings.TrimSuffix(strings.TrimRight(fmt.Sprintf(".%03d", d%time.Second/time.Millisecond), "0"), ".") + "s"
}

// String is the text of the plan, which [Parse] reads.
func (p Plan) String() string {
	text := fmt.Sprintf("seed=%d nodes=%d", p.Seed, p.Nodes)
	if p.Reporter {
		text += " reporter"
	}
	if len(p.Next) > 0 {
		text += " next=" + strings.Join(p.Next, ",")
	}
	for _, e := range p.Events {
		text += "\n" + e.String()
	}
	return text
}

// Parse reads the text of a plan.
func Parse(text string) (p Plan, err error) {
	for n, line := range strings.Split(strings.TrimSpace(text), "\n") {
		fields := strings.Fields(line)
		if n == 0 {
			for _, f := range fields {
				name, value, _ := strings.Cut(f, "=")
				switch name {
				case "seed":
					p.Seed, err = strconv.ParseUint(value, 10, 64)
				case "nodes":
					p.Nodes, err = strconv.Atoi(value)
				case "reporter":
					p.Reporter = true
				case "next":
					p.Next = strings.Split(value, ",")
				default:
					err = fmt.Errorf("the setting %q is not known", f)
				}
				if err != nil {
					return p, err
				}
			}
			continue
		}
		if len(fields) < 3 {
			return p, fmt.Errorf("line %d, %q: an event has a time, a machine and a verb", n+1, line)
		}
		at, err := time.ParseDuration(fields[0])
		if err != nil {
			return p, fmt.Errorf("line %d: %w", n+1, err)
		}
		if verbs[fields[2]] == nil && lies[fields[2]] == nil {
			return p, fmt.Errorf("line %d: the verb %q is not known", n+1, fields[2])
		}
		p.Events = append(p.Events, Event{at, fields[1], fields[2], fields[3:]})
	}
	slices.SortStableFunc(p.Events, func(a, b Event) int { return int(a.At - b.At) })
	return p, nil
}

// arg is the argument n, empty if there are fewer.
func (e Event) arg(n int) string {
	if n < len(e.Args) {
		return e.Args[n]
	}
	return ""
}

// duration is the argument n.
func (e Event) duration(n int) time.Duration {
	d, _ := time.ParseDuration(e.arg(n))
	return d
}

// option is the value of an argument "name=value", or name itself if it has no value.
func (e Event) option(name string) string {
	for _, a := range e.Args {
		if n, value, found := strings.Cut(a, "="); n == name {
			if !found {
				return name
			}
			return value
		}
	}
	return ""
}

// length is when the last event is over.
func (p Plan) length() (end time.Duration) {
	for _, e := range p.Events {
		over := e.At
		for n := range e.Args {
			over = max(over, e.At+e.duration(n))
		}
		end = max(end, over)
	}
	return end
}
