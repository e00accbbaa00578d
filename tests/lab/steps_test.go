package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestOrders: to read something, or to do something if something else holds, is no order.
func TestOrders(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		step Step
		want bool
	}{
		{Step{Text: "wait"}, false},
		{Step{Command: "kubectl get pods -A -o wide | grep 10.0.0.1"}, false},
		{Step{Command: "ip -o addr show to 10.0.0.1"}, false},
		{Step{Command: "crictl rmp -f 0123", If: "it is stopped", Cuts: "it"}, false},
		{Step{Command: "crictl rmp -f 0123"}, true},
		{Step{Command: "ip -o addr show dev eth0 dynamic | grep -q . && ip addr del 10.0.0.1/24 dev eth0"}, true},
		{Step{Command: "shutdown", Cuts: "all"}, true},
	} {
		if got := (&Judgement{Steps: []Step{{Text: "first"}, test.step}}).Orders(); got != test.want {
			t.Errorf("%+v is an order: %t", test.step, got)
		}
	}
}

// TestUndone: a step that changes something has to succeed, or has one for its failure.
func TestUndone(t *testing.T) {
	t.Parallel()
	failed := errors.New("exit status 1")
	read, remove, standIn := Step{Command: "kubectl get pods"}, Step{Command: "crictl rmp -f 0123"}, Step{If: "it fails", Command: "ip netns del a"}
	for name, test := range map[string]struct {
		ran  []Ran
		want bool
	}{
		"nothing":             {nil, false},
		"it reads":            {[]Ran{{Step: read, Err: failed}, {Step: remove}}, false},
		"it fails":            {[]Ran{{Step: read}, {Step: remove, Err: failed}}, true},
		"others follow":       {[]Ran{{Step: remove, Err: failed}, {Step: remove}}, true},
		"a stand-in":          {[]Ran{{Step: remove, Err: failed}, {Step: standIn}}, false},
		"a stand-in fails":    {[]Ran{{Step: remove, Err: failed}, {Step: standIn, Err: failed}}, true},
		"one of some fails":   {[]Ran{{Step: standIn, Err: failed}, {Step: standIn}}, true},
		"by hand, in vain":    {[]Ran{{Step: Step{Text: "shut it down"}, Err: failed}}, true},
		"it fails, then read": {[]Ran{{Step: remove, Err: failed}, {Step: read}}, true},
	} {
		if got := Undone(test.ran); (got != nil) != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestFollow: the commands run to the letter, in their order, on their nodes, and those with a condition by the test's answer.
func TestFollow(t *testing.T) {
	t.Parallel()
	l := NewT(t)
	one, two := l.Node(""), l.Node("")
	pod := l.Pod(two, "pod", PodOptions{Addrs: []netip.Addr{two.IPv4(5)}})
	inode, err := pod.Inode()
	l.Do(err)
	linked := l.Pod(two, "linked", PodOptions{Addrs: []netip.Addr{two.IPv4(6)}})
	index, err := two.Ifindex(linked.HostInterface)
	l.Do(err)
	var calls []string
	s := l.Shells(map[string]Program{"kubectl": func(args []string, stdin string) (string, error) {
		calls = append(calls, fmt.Sprintf("%q %q", args, stdin))
		if args[0] != "delete" {
			return "", errors.New("refused")
		}
		return "deleted\n", nil
	}})
	s.Add("n", one, nil)
	s.Add("n", two, nil)
	s.Add("m", one, map[string]Program{"crictl": func(args []string, _ string) (string, error) { return strings.Join(args, "+"), nil }})

	c, err := ReadJudged(fmt.Appendf(nil, `{"stories":[{}, {"conflict":{"ip":"10.0.0.1","state":"confirmed","judgement":{"cause":"left-over","steps":[
		{"text":"wait"},
		{"text":"by uid","command":"echo '{\"uid\":\"a b\"}' | kubectl delete -f -"},
		{"text":"refused","command":"kubectl drain n"},
		{"if":"it fails","text":"a stand-in","command":"crictl rmp -f 0123","node":"m"},
		{"if":"it fails","text":"not now","command":"false","node":"m"},
		{"text":"here kubectl fails","command":"kubectl delete x","node":"m"},
		{"text":"of another netns","command":"[ \"$(stat -Lc %%i %[1]s)\" = 1 ] && ip netns del %[2]s","node":"n","address":"%[3]v"},
		{"text":"of another interface","command":"[ \"$(cat /sys/class/net/%[4]s/ifindex)\" = 1 ] && ip link set dev %[4]s down","node":"n","address":"%[3]v"},
		{"text":"two are n","command":"true","node":"n"},
		{"text":"the interface","command":"[ \"$(cat /sys/class/net/%[4]s/ifindex)\" = %[5]d ] && ip link set dev %[4]s down","node":"n","address":"%[3]v"},
		{"text":"the netns","command":"[ \"$(stat -Lc %%i %[1]s)\" = %[6]d ] && ip netns del %[2]s","node":"n","address":"%[3]v"}
		]}}}]}`, pod.Path(), pod.Name, two.Address(), linked.HostInterface, index, inode), netip.MustParseAddr("10.0.0.1"))
	l.Do(err)
	ran := l.Follow(c.Judgement.Steps, Follower{Run: s.Run, Answer: Failed, ByHand: func(s Step) (string, error) { return s.Text, nil }})
	var got []string
	for _, r := range ran {
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s: %t %s", r.Text, r.Err == nil, r.Out)))
	}
	want := []string{
		"wait: true wait", "by uid: true deleted", "refused: false refused", "a stand-in: true rmp+-f+0123", "here kubectl fails: false kubectl: there is none here",
		"of another netns: false", "of another interface: false", "two are n: false", "the interface: true", "the netns: true",
	}
	if !slices.Equal(got, want) {
		t.Errorf("ran %q, want %q", got, want)
	}
	if want := []string{`["delete" "-f" "-"] "{\"uid\":\"a b\"}\n"`, `["drain" "n"] ""`}; !slices.Equal(calls, want) {
		t.Errorf("kubectl was called with %q, want %q", calls, want)
	}
	link, err := two.link(linked.HostInterface)
	if l.Do(err); link.Attrs().Flags&net.FlagUp != 0 {
		t.Error("the interface is up")
	}
	if _, err := os.Stat(pod.Path()); !os.IsNotExist(err) {
		t.Error("the netns is there: ", err)
	}
}
