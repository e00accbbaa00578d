package transport

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// newsOf is a message of memberlist of so many bytes, at least 7.
func newsOf(size int) string {
	return "\x04\x81\xa1t\xda" + string(binary.BigEndian.AppendUint16(nil, uint16(size-7))) + strings.Repeat("n", size-7)
}

const (
	ping  = "\x00\x83\xa5SeqNo\xcd\x01\x00\xa4Node\xa2n1\xaaSourcePort\xcd\x1f\x0f"
	dead  = "\x05\x81\xa4Node\xa2n2"
	three = "\x06\x83\xa5Nodes\x03\xacUserStateLen\x00\xa4Join\xc3"
	named = "\x82\xa4Name\xa2n1\xa4Meta\xc4\x03\x01\x02\x03"
)

func compoundOf(parts ...string) string {
	b := []byte{msgCompound, byte(len(parts))}
	for _, p := range parts {
		b = binary.BigEndian.AppendUint16(b, uint16(len(p)))
	}
	return string(b) + strings.Join(parts, "")
}

func TestScreenPacket(t *testing.T) {
	for name, test := range map[string]struct {
		b    string
		pass bool
	}{
		"a ping":                          {ping, true},
		"with a checksum":                 {"\x0c\x01\x02\x03\x04" + ping, true},
		"compound":                        {compoundOf(ping, dead, newsOf(20)), true},
		"compound, news only":             {compoundOf(dead, newsOf(20)), true},
		"a negative number":               {"\x00\x81\xa5SeqNo\xff", false},
		"a negative number of four bytes": {"\x00\x81\xa5SeqNo\xd2\xff\xff\xff\xff", false},
		"the largest number":              {"\x00\x81\xa5SeqNo\xce\xff\xff\xff\xff", true},
		"a field of later":                {"\x00\x81\xa5Later\xc4\x01x", true},
		"nothing":                         {"", false},
		"a checksum only":                 {"\x0c\x01\x02\x03\x04", false},
		"a checksum of a checksum":        {"\x0c\x01\x02\x03\x04\x0c\x01\x02\x03\x04" + ping, false},
		"a byte more":                     {ping + "\x00", false},
		"a byte less":                     {ping[:len(ping)-1], false},
		"a user's":                        {"\x08x", false},
		"compressed":                      {"\x09\x82\xa4Algo\x00\xa3Buf\xc4\x01x", false},
		"encrypted":                       {"\x0ax", false},
		"of a label":                      {"\xf4\x04test" + ping, false},
		"a list of members":               {three, false},
		"compressed within":               {compoundOf(ping, "\x09\x82\xa4Algo\x00\xa3Buf\xc4\x01x"), false},
		"compound within":                 {compoundOf(compoundOf(ping)), false},
		"two pings":                       {compoundOf(ping, ping), false},
		"compound, a part too long":       {"\x07\x01\x00\xff" + ping, false},
		"compound, a size missing":        {"\x07\x02\x00\x01", false},
		"compound, a byte more":           {compoundOf(ping, dead) + "x", false},
		"an array":                        {"\x00\x91\x01", false},
		"an array in a field":             {"\x00\x81\xa5SeqNo\x91\x01", false},
		"a map in a field":                {"\x00\x81\xa5SeqNo\x80", false},
		"a floating number":               {"\x00\x81\xa5SeqNo\xca\x00\x00\x00\x00", false},
		"an extension":                    {"\x00\x81\xa5SeqNo\xd4\x01\x00", false},
		"a large map":                     {"\x00\xde\x00\x01\xa5SeqNo\x01", false},
		"a text of 4 GiB":                 {"\x00\x81\xa4Node\xdb\xff\xff\xff\xff", false},
		"a text that ends":                {"\x00\x81\xa4Node\xda\x00\x09n", false},
		"a name that is a number":         {"\x00\x81\x01\x01", false},
	} {
		if err := screenPacket([]byte(test.b)); (err == nil) != test.pass {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// pipeConn is a stream that somebody has sent.
type pipeConn struct {
	net.Conn
	io.Reader
	closed bool
}

func (c *pipeConn) Read(b []byte) (int, error) { return c.Reader.Read(b) }

func (c *pipeConn) Close() error {
	c.closed = true
	return nil
}

// read returns what memberlist reads of a stream.
func read(t *testing.T, n *Transport, sent io.Reader) (string, error) {
	t.Helper()
	conn := &pipeConn{Reader: sent}
	s := n.screen(conn, true)
	got, err := io.ReadAll(s)
	if refused := errors.Is(err, errScreen); refused != conn.closed {
		t.Errorf("%v, closed %t", err, conn.closed)
	}
	s.Close()
	if len(n.lists) > 0 {
		t.Error("the list keeps its place")
	}
	return string(got), err
}

func TestScreenStream(t *testing.T) {
	long := "\x81\xa4Meta\xc5\x04\x00" + strings.Repeat("m", 1024)
	many := "\x06\x81\xa5Nodes\xcd\x80\x00"
	for name, test := range map[string]struct {
		sent, got string
		refused   bool
	}{
		"a ping":                   {ping, ping, false},
		"an error":                 {"\x0d\x81\xa5Error\xa1e", "\x0d\x81\xa5Error\xa1e", false},
		"a list":                   {three + named + named + named, three + named + named + named, false},
		"more than announced":      {three + named + named + named + named, three + named + named + named, false},
		"less than announced":      {three + named, three + named, false},
		"as many as may be":        {many + strings.Repeat(named, maxListed), many + strings.Repeat(named, maxListed), false},
		"too many":                 {"\x06\x81\xa5Nodes\xcd\x80\x01", "", true},
		"a negative number":        {"\x06\x81\xa5Nodes\xff", "", true},
		"first few, then too many": {"\x06\x82\xa5Nodes\x01\xa5Nodes\xce\x00\x10\x00\x00", "", true},
		"state":                    {"\x06\x82\xa5Nodes\x01\xacUserStateLen\x01", "", true},
		"as large as may be":       {many + strings.Repeat(long, 8000), many + strings.Repeat(long, 8000), false},
		"too large":                {many + strings.Repeat(long, 9000), many + strings.Repeat(long, (maxList-len(many))/len(long)), true},
		"an entry too large":       {three + named + "\x82" + long[1:] + long[1:], three + named, true},
		"no map":                   {three + named + "\x93\x01\x02\x03", three + named, true},
		"compressed":               {"\x09\x80", "", true},
		"of a label":               {"\xf4\x04test" + ping, "", true},
		"news":                     {dead, "", true},
		"a user's":                 {"\x08\x81\xaaUserMsgLen\x01x", "", true},
	} {
		for way, sent := range map[string]io.Reader{
			"at once": strings.NewReader(test.sent), "byte by byte": iotest.OneByteReader(strings.NewReader(test.sent)),
		} {
			n := open(t, 1)
			if got, err := read(t, n.Transport, sent); got != test.got || errors.Is(err, errScreen) != test.refused {
				t.Errorf("%s, %s: %d of %d bytes, want %d, %v", name, way, len(got), len(test.sent), len(test.got), err)
			}
			if want := map[bool]string{true: "memberlist 1"}[test.refused]; n.dropped() != want {
				t.Errorf("%s: counted is %q", name, n.dropped())
			}
			n.stop()
		}
	}
}

// Memberlist reads the beginning of what was sent, however it arrives, and of a list no more than may be.
func FuzzScreen(f *testing.F) {
	for _, seed := range []string{ping, compoundOf(ping, dead, newsOf(20)), "\x0c\x01\x02\x03\x04" + dead, three + named + named + named, "\x09\x82\xa4Algo\x00\xa3Buf\xc4\x01x"} {
		f.Add([]byte(seed))
	}
	n := &Transport{lists: make(chan struct{}, maxLists), ctx: f.Context()}
	f.Fuzz(func(t *testing.T, b []byte) {
		if screenPacket(b) == nil && b[0] != msgCompound && b[0] != msgCRC && !slices.Contains(packets, b[0]) {
			t.Errorf("a datagram of type %d passes", b[0])
		}
		before := n.counts[dropMemberlist].Load()
		got, err := read(t, n, bytes.NewReader(b))
		slowly, again := read(t, n, iotest.OneByteReader(bytes.NewReader(b)))
		if got != slowly || errors.Is(err, errScreen) != errors.Is(again, errScreen) {
			t.Errorf("%q, %v; byte by byte %q, %v", got, err, slowly, again)
		}
		if !strings.HasPrefix(string(b), got) {
			t.Errorf("memberlist reads %q", got)
		}
		if counted := n.counts[dropMemberlist].Load() > before; counted != errors.Is(err, errScreen) {
			t.Errorf("counted %t: %v", counted, err)
		}
		if err == nil && got != "" && !slices.Contains(streams, got[0]) {
			t.Errorf("a stream of type %d passes", got[0])
		}
	})
}

// So many lists arrive at a time. One more waits until another has ended, and not for ever; what this agent asked for does not wait.
func TestListsWait(t *testing.T) {
	for name, frees := range map[string]bool{"another ends": true, "none ends": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &Transport{lists: make(chan struct{}, maxLists), ctx: t.Context()}
				begin := func(inbound bool) (*screened, error) {
					s := n.screen(&pipeConn{Reader: strings.NewReader(three + named)}, inbound)
					_, err := io.ReadFull(s, make([]byte, len(three)))
					return s, err
				}
				var first *screened
				for range maxLists {
					s, err := begin(true)
					if err != nil {
						t.Fatal(err)
					}
					first = s
				}
				if _, err := begin(false); err != nil {
					t.Error(err)
				}
				if frees {
					time.AfterFunc(time.Second, func() { first.Close() })
				}
				began, want := time.Now(), map[bool]time.Duration{true: time.Second, false: listTimeout}[frees]
				if _, err := begin(true); (err == nil) != frees || time.Since(began) != want || (n.counts[dropStream].Load() == 0) != frees {
					t.Errorf("after %s: %v, %d counted", time.Since(began), err, n.counts[dropStream].Load())
				}
			})
		})
	}
}
