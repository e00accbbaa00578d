package faults

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/dupip/dupip/gossip/members"
	"github.com/dupip/dupip/gossip/transport"
	"github.com/dupip/dupip/gossip/wire"
	"github.com/dupip/dupip/tests/lab"
)

// impostorVariable has what an impostor does: this test binary started again inside a netns.
const impostorVariable = "DUPIP_TEST_IMPOSTOR"

// imposture is what somebody with the key does to the membership.
type imposture struct {
	Kind           string
	Bind           netip.Addr
	Label, KeyFile string
	Victim         lab.Member
	Others         []lab.Member
}

const (
	// invented is how many members an impostor invents.
	invented = 60
	// imposed is how long an imposture goes on at least.
	imposed = 8 * time.Second
)

// impostor does it until its input ends.
func impostor(text string) error {
	var o imposture
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	switch o.Kind {
	case "a namesake":
		ctx, cancel = context.WithTimeout(ctx, time.Second)
		defer cancel()
		return o.member(ctx, o.Victim.Name, "60e00000-0000-4000-8000-000000000000", lab.GossipPort, o.Victim.Address)
	case "a later agent of a node":
		return o.member(ctx, o.Victim.Name, o.Victim.Boot, lab.GossipPort, "")
	case "many at one address", "many nowhere":
		var all sync.WaitGroup
		for i := range invented {
			advertise := ""
			if o.Kind == "many nowhere" {
				advertise = netip.AddrFrom4([4]byte{192, 168, 77, byte(100 + i)}).String()
			}
			all.Go(func() { _ = o.member(ctx, fmt.Sprint("invented-", i), "60e0", 8000+i, advertise) })
		}
		all.Wait()
		return nil
	}
	return o.lies(ctx)
}

// member is a member until ctx ends.
func (o *imposture) member(ctx context.Context, name, boot string, port int, advertise string) error {
	opts := members.Options{
		Log: slog.New(slog.DiscardHandler), Node: name, Boot: boot, Epoch: 1 << 62, Version: "1", Bind: o.Bind.String(), Port: port,
		Advertise: advertise, Label: o.Label, KeyFile: o.KeyFile, Handler: &rogueMember{others: make(map[wire.MemberID]string)},
		Join: []string{o.Others[port%len(o.Others)].Address},
	}
	m, err := members.Open(opts)
	if err != nil {
		return err
	}
	return m.Run(ctx)
}

func idOf(m lab.Member) wire.MemberID { return wire.MemberIDOf(m.Name, m.Boot, m.Epoch) }

// nameOf is a member's name in memberlist.
func nameOf(m lab.Member) string { return fmt.Sprintf("%s/%016x", m.Name, uint64(idOf(m))) }

// lies sends datagrams in the name of the victim, or says of it that it is dead.
func (o *imposture) lies(ctx context.Context) error {
	sockets, err := transport.Listen(o.Bind.String(), lab.GossipPort)
	if err != nil {
		return err
	}
	t, err := transport.New(transport.Options{
		Log: slog.New(slog.DiscardHandler), ID: idOf(o.Victim), Label: o.Label, KeyFile: o.KeyFile, Sockets: sockets,
		Handler: &rogueMember{}, MemberID: func(name string) (id wire.MemberID, ok bool) {
			_, err := fmt.Sscanf(name[len(name)-16:], "%x", (*uint64)(&id))
			return id, err == nil
		},
	})
	if err != nil {
		return err
	}
	for n := 1; ctx.Err() == nil; n++ {
		for _, to := range o.Others {
			at := netip.MustParseAddrPort(to.Address)
			if o.Kind == "forged datagrams" {
				_ = t.Send(idOf(to), at, nil)
			} else if n%20 == 0 {
				_, _ = t.WriteToAddress(o.death(n), memberlist.Address{Addr: to.Address, Name: nameOf(to)})
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	return t.Shutdown()
}

// death is memberlist's message that the victim is dead (5): a map in MessagePack.
func (o *imposture) death(incarnation int) []byte {
	b := binary.BigEndian.AppendUint32([]byte("\x05\x83\xabIncarnation\xce"), uint32(incarnation))
	b = append(b, "\xa4Node\xd9"...)
	b = append(append(b, byte(len(nameOf(o.Victim)))), nameOf(o.Victim)...)
	return append(b, "\xa4From\xa1x"...)
}

// Somebody who has the key, and sees no packets of others, changes nothing of a cluster's membership but for itself.
func TestImpostor(t *testing.T) {
	t.Parallel()
	key := keyFile(t, t.TempDir(), lab.NewKey())
	s := newTestCluster(t, 4, "--gossip-key-file", key)
	for _, kind := range []string{"a namesake", "a later agent of a node", "forged datagrams", "deaths that are none", "many nowhere", "many at one address"} {
		s.part(t, kind, func(s *testCluster) { s.impostor(kind, key) })
	}
}

func (s *testCluster) impostor(kind, key string) {
	victim, other := s.nodes[1], s.nodes[2]
	before := s.duplicate(victim, other)
	s.waitFound(before, before.began, patience)
	n := s.Node("")
	flags := n.ClusterFlags()
	o := imposture{Kind: kind, Bind: n.Uplink(), Label: flags[slices.Index(flags, "--cluster")+1], KeyFile: key}
	all, err := s.nodes[0].agent.Client.Members(s.Context())
	s.Do(err)
	for _, m := range all {
		if m.Name == victim.ShortName() {
			o.Victim = m
		} else if m.State == "alive" {
			o.Others = append(o.Others, m)
		}
	}
	text, err := json.Marshal(o)
	s.Do(err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), impostorVariable+"="+string(text))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	s.Do(err)
	s.Do(n.Start(cmd))
	ended := sync.OnceValue(cmd.Wait)
	s.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = ended()
	})
	began := time.Now()
	s.holdsFor(imposed, func() { s.assertUnchanged(before) })
	switch kind {
	case "many nowhere":
		s.Logf("reported after %.1f s", s.waitProblem(s.nodes[0].agent, healTime, "invented-", "allow UDP and TCP").Seconds())
	case "many at one address":
		ctx, cancel := lab.WithTimeout(s.Context(), healTime)
		defer cancel()
		s.Do(s.nodes[0].agent.WaitNodes(ctx, "a third of the invented", func(all []lab.Member) bool { return len(all) > len(s.nodes)+invented/3 }))
	}
	for i := range 6 {
		d := s.duplicate(s.nodes[i%4], s.nodes[(i+1)%4])
		s.Logf("found after %.1f s", s.waitFound(d, d.began, patience).Seconds())
	}
	s.holdsFor(imposed-time.Since(began), func() { s.assertUnchanged(before) })
	if kind != "many at one address" {
		for _, n := range s.nodes {
			all, err := n.agent.Client.Members(s.Context())
			s.Do(err)
			if alive := slices.DeleteFunc(all, func(m lab.Member) bool { return m.State != "alive" }); len(all) != len(s.nodes) || len(alive) != len(s.nodes) {
				s.Errorf("%s lists %+v", n.ShortName(), all)
			}
		}
	}
	status, err := s.status(s.nodes[0].agent)
	s.Do(err)
	s.Logf("%s dropped %v", s.nodes[0].ShortName(), nonzero(status.Dropped))
	s.Do(in.Close())
	if err := ended(); err != nil {
		s.Errorf("end of the impostor: %v %s", err, stderr.String())
	}
	s.waitAllMembers()
	s.assertUnchanged(before)
}
