package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/gossip/wire"
)

const statusOK = 1

// request sends a request to another node, with room for one reply.
func (n *node) request(ctx context.Context, to *node, id wire.MemberID, request []byte) (reply []byte, err error) {
	err = n.Request(ctx, id, to.at, request, make(chan struct{}, 1), func(b []byte) error {
		reply = b
		return nil
	})
	return reply, err
}

func TestRequest(t *testing.T) {
	large := bytes.Repeat([]byte("r"), MaxReply)
	for name, key := range map[string]func(*Options){"plain": func(*Options) {}, "sealed": keys(t, 1)} {
		for what, test := range map[string]struct {
			request []byte
			to      wire.MemberID
			reply   []byte
			err     string // part of it
			dropped string // by the member
		}{
			"ordinary":          {[]byte("request"), 2, []byte("reply"), "", ""},
			"empty":             {nil, 2, []byte("reply"), "", ""},
			"as large as can":   {make([]byte, math.MaxUint16), 2, large, "", ""},
			"no reply":          {[]byte("request"), 2, nil, "EOF", ""},
			"any incarnation":   {[]byte("request"), 0, []byte("reply"), "", ""},
			"another":           {[]byte("request"), 3, []byte("reply"), "another agent runs there now", "receiver 1"},
			"an oversize reply": {[]byte("request"), 2, append(large, 'r'), "its reply is too long", ""},
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				first := open(t, 1, key)
				second := open(t, 2, key, serving(func(_ context.Context, request []byte) []byte {
					if !bytes.Equal(request, test.request) {
						t.Errorf("%d bytes arrive as %d", len(test.request), len(request))
					}
					return test.reply
				}))
				reply, err := first.request(t.Context(), second, test.to, test.request)
				if err == nil && test.err != "" || err != nil && (test.err == "" || !strings.Contains(err.Error(), test.err)) {
					t.Errorf("error %v, want %q", err, test.err)
				}
				if err == nil && !bytes.Equal(reply, test.reply) {
					t.Errorf("%d bytes come back as %d", len(test.reply), len(reply))
				}
				eventually(t, "it is counted: "+test.dropped, func() bool { return second.dropped() == test.dropped })
			})
		}
	}
}

// A member that the transport does not know to be honest announces and sends what it likes.
func TestHostileReplies(t *testing.T) {
	for what, test := range map[string]struct {
		status byte
		reply  []byte
		err    string
	}{
		"too large":         {statusOK, make([]byte, MaxReply+1), "its reply is too long"},
		"nothing":           {statusOK, nil, "EOF"},
		"an unknown status": {'H', []byte("TTP/1.1 400 Bad Request\r\n\r\n"), "does not answer like an agent"},
		"busy":              {byte(slices.Index(statuses, errBusy)), nil, "it has too many connections"},
	} {
		t.Run(what, func(t *testing.T) {
			l := listenAt(t, "127.0.0.1")
			defer l.Close()
			go func() {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				io.ReadFull(conn, make([]byte, streamHeader)) //nolint:errcheck // the other side sees it
				conn.Write(append([]byte{test.status}, test.reply...))
				io.CopyN(io.Discard, conn, 2) //nolint:errcheck // the request
			}()
			n := open(t, 1)
			to := &node{at: l.TCPListener.Addr().(*net.TCPAddr).AddrPort()}
			if reply, err := n.request(t.Context(), to, 2, nil); err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%d bytes, %v", len(reply), err)
			}
		})
	}
}

// A request ends with its context or the transport, and soon if nobody accepts it or a reply stalls; it
// gives back its place among those that read.
func TestRequestsEnd(t *testing.T) {
	begun := []byte("r")
	for name, test := range map[string]struct {
		answer []byte // of the acceptor, which then is silent
		timing time.Duration
		busy   bool // others read
		stop   bool // the transport
		want   time.Duration
	}{
		"nobody answers":             {nil, time.Minute, false, false, connectTimeout},
		"a status only":              {[]byte{statusOK}, time.Minute, false, false, time.Minute},
		"it begins":                  {append([]byte{statusOK}, begun...), time.Minute, false, false, readTimeout},
		"the context ends first":     {nil, time.Second, false, false, time.Second},
		"while it waits for a reply": {[]byte{statusOK}, time.Second, false, false, time.Second},
		"while it reads":             {append([]byte{statusOK}, begun...), time.Second, false, false, time.Second},
		"while others read":          {append([]byte{statusOK}, begun...), 30 * time.Second, true, false, 30 * time.Second},
		"shutdown":                   {nil, time.Minute, false, true, time.Second},
		"shutdown while it reads":    {append([]byte{statusOK}, begun...), time.Minute, false, true, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPipes()
				n := open(t, 1, func(o *Options) { o.Sockets = dialOnly{p} })
				go func() {
					conn := <-p.conns
					io.ReadFull(conn, make([]byte, streamHeader)) //nolint:errcheck // then so does the request
					conn.Write(test.answer[:min(len(test.answer), 1)])
					if len(test.answer) > 0 {
						go io.Copy(io.Discard, conn) //nolint:errcheck // the request
						conn.Write(test.answer[1:])
					}
					<-p.ended
					conn.Close()
				}()
				ctx, cancel := context.WithTimeout(t.Context(), test.timing)
				defer cancel()
				if test.stop {
					time.AfterFunc(time.Second, n.stop)
				}
				reading := make(chan struct{}, 1)
				if test.busy {
					reading <- struct{}{}
				}
				began := time.Now()
				err := n.Request(ctx, 2, anywhere, nil, reading, func(reply []byte) error {
					t.Errorf("it replied %q", reply)
					return nil
				})
				if took := time.Since(began); err == nil || took != test.want {
					t.Errorf("after %v, want %v: %v", took, test.want, err)
				}
				if len(reading) > 0 != test.busy {
					t.Error("it still has its place")
				}
				n.stop()
			})
		})
	}
}

// A reply that is used has its place until then, so that others wait.
func TestReplyHasItsPlace(t *testing.T) {
	first := open(t, 1)
	second := open(t, 2, serving(func(context.Context, []byte) []byte { return []byte("reply") }))
	reading := make(chan struct{}, 1)
	for range 2 {
		if err := first.Request(t.Context(), 2, second.at, nil, reading, func([]byte) error {
			if len(reading) != 1 {
				t.Error("it has no place")
			}
			return nil
		}); err != nil || len(reading) != 0 {
			t.Errorf("%d places are taken, %v", len(reading), err)
		}
	}
}

// anywhere is any address.
var anywhere = netip.MustParseAddrPort("10.0.0.1:7951")

// dialOnly are pipes that somebody else than the transport accepts from.
type dialOnly struct{ *pipes }

func (d dialOnly) Accept() (net.Conn, error) {
	<-d.ended
	return nil, net.ErrClosed
}

// A request of a key holder must be served by whom it is for: who is between them cannot lead the stream
// to another member, or have it taken for one of memberlist.
func TestHeaderIsAuthenticated(t *testing.T) {
	first, second, third := open(t, 1, keys(t, 1)), open(t, 2, keys(t, 1)), open(t, 3, keys(t, 1))
	for name, change := range map[string]func(header []byte) (to *node){
		"nothing":          func([]byte) *node { return second },
		"another receiver": func(b []byte) *node { binary.BigEndian.PutUint64(b[5:], 3); return third },
		"any receiver":     func(b []byte) *node { binary.BigEndian.PutUint64(b[5:], 0); return third },
		"another kind":     func(b []byte) *node { b[headerSize] = byte(kindMemberlist); return second },
	} {
		t.Run(name, func(t *testing.T) {
			l := listenAt(t, "127.0.0.1")
			defer l.Close()
			go func() {
				near, err := l.Accept()
				if err != nil {
					return
				}
				defer near.Close()
				header := make([]byte, streamHeader)
				io.ReadFull(near, header) //nolint:errcheck // the test fails then
				far, err := net.Dial("tcp", change(header).at.String())
				if err != nil {
					return
				}
				defer far.Close()
				far.Write(header)
				go io.Copy(far, near) //nolint:errcheck // until one of them closes
				io.Copy(near, far)    //nolint:errcheck // until one of them closes
			}()
			between := &node{at: l.TCPListener.Addr().(*net.TCPAddr).AddrPort()}
			reply, err := first.request(t.Context(), between, 2, []byte("request"))
			if (err == nil) != (name == "nothing") {
				t.Errorf("answered %q, %v", reply, err)
			}
			if strings.Contains(second.problem()+third.problem()+first.problem(), "key") {
				t.Error("it is reported as another key")
			}
		})
	}
}

// handshake is what somebody sends who has the label, and maybe a certificate, but no key.
func handshake(t *testing.T, to *node, config *tls.Config) error {
	conn := dialFrom(t, "127.0.0.1", to)
	conn.SetDeadline(time.Now().Add(patience)) //nolint:errcheck // then it fails
	header := append(appendHeader(nil, byteSealed, hashLabel("test"), 0), byte(kindOwn))
	if _, err := conn.Write(header); err != nil {
		return err
	}
	if err := readStatus(conn); err != nil {
		return err
	}
	config.InsecureSkipVerify = true
	config.NextProtos = []string{string(header)}
	sealed := tls.Client(conn, config)
	if err := sealed.Handshake(); err != nil {
		return err
	}
	return readStatus(sealed)
}

// Only who has the private key of a certificate that one of the keys makes is let in.
func TestAuthentication(t *testing.T) {
	n := open(t, 9, keys(t, 1))
	mine, err := deriveKey(bytes.Repeat([]byte{1}, 32))
	if err != nil {
		t.Fatal(err)
	}
	other, err := deriveKey(bytes.Repeat([]byte{2}, 32))
	if err != nil {
		t.Fatal(err)
	}
	stolen := mine.certificate // it was sent to whoever connected
	stolen.PrivateKey = other.certificate.PrivateKey
	chain := other.certificate
	chain.Certificate = append(chain.Certificate[:1:1], mine.certificate.Certificate...)
	for name, test := range map[string]struct {
		config *tls.Config
		want   string // what is counted
	}{
		"the key":                {&tls.Config{Certificates: []tls.Certificate{mine.certificate}}, ""},
		"no certificate":         {&tls.Config{}, "stream"},
		"another key":            {&tls.Config{Certificates: []tls.Certificate{other.certificate}}, "key"},
		"the certificate only":   {&tls.Config{Certificates: []tls.Certificate{stolen}}, "stream"},
		"the certificate behind": {&tls.Config{Certificates: []tls.Certificate{chain}}, "key"},
		"TLS 1.2":                {&tls.Config{Certificates: []tls.Certificate{mine.certificate}, MaxVersion: tls.VersionTLS12}, "stream"},
	} {
		before := n.Dropped()
		err := handshake(t, n, test.config)
		if (err == nil) != (test.want == "") {
			t.Errorf("%s: %v", name, err)
		}
		if test.want != "" {
			eventually(t, name+" is counted", func() bool { return n.Dropped()[test.want] == before[test.want]+1 })
		}
	}
}

// What begins a stream decides: the answer, what is counted, and that no byte more is sent.
func TestJudge(t *testing.T) {
	header := func(first byte, name string, to wire.MemberID, k kind) []byte {
		return append(appendHeader(nil, first, hashLabel(name), to), byte(k))
	}
	plain, sealed := func(*Options) {}, keys(t, 1)
	for name, test := range map[string]struct {
		to     func(*Options)
		b      []byte
		answer error // refused without one
		want   string
	}{
		"plain":                 {plain, header(bytePlain, "test", 9, kindOwn), nil, ""}, // a challenge: no request follows
		"sealed":                {sealed, header(byteSealed, "test", 0, kindMemberlist), nil, "stream 1"},
		"sealed, and no key":    {plain, header(byteSealed, "test", 9, kindOwn), errPlain, "key 1"},
		"plain, and a key here": {sealed, header(bytePlain, "test", 9, kindOwn), errSealed, "key 1"},
		"another label":         {sealed, header(byteSealed, "other", 9, kindOwn), errCluster, "label 1"},
		"another label, plain":  {sealed, header(bytePlain, "other", 9, kindOwn), errCluster, "label 1"},
		"another incarnation":   {sealed, header(byteSealed, "test", 8, kindOwn), errReceiver, "receiver 1"},
		"an unknown kind":       {sealed, header(byteSealed, "test", 9, 3), errNoAgent, "stream 1"},
		"HTTP":                  {sealed, []byte("GET / HTTP/1.1\r\n\r\n"), errNoAgent, "stream 1"},
		"TLS":                   {sealed, append([]byte{0x16, 3, 1}, make([]byte, 200)...), errNoAgent, "stream 1"},
		"it breaks off":         {sealed, header(byteSealed, "test", 9, kindOwn)[:5], errNoAgent, "stream 1"},
		"nothing":               {sealed, nil, errNoAgent, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := open(t, 9, test.to)
			conn := dialFrom(t, "127.0.0.1", n)
			conn.Write(test.b)
			conn.(*net.TCPConn).CloseWrite()
			conn.SetReadDeadline(time.Now().Add(patience)) //nolint:errcheck // then it fails
			var want []byte
			if test.answer != errNoAgent { //nolint:errorlint // nothing wraps it
				want = []byte{byte(slices.Index(statuses, test.answer))}
			}
			got, err := io.ReadAll(conn)
			if !bytes.Equal(got, want) || timedOut(err) {
				t.Errorf("answered %v, %v; want %v", got, err, want)
			}
			eventually(t, "it is counted: "+test.want, func() bool { return n.dropped() == test.want })
		})
	}
}

// memberlist knows a node that cannot be reached by the type of the error.
func TestDialErrors(t *testing.T) {
	free := listenAt(t, "127.0.0.1")
	free.Close()
	_, err := open(t, 2).DialTimeout(free.TCPListener.Addr().String(), time.Second)
	if failed, ok := err.(*net.OpError); !ok || failed.Op != "dial" { //nolint:errorlint // as memberlist does it
		t.Errorf("dialling nobody: %#v", err)
	}
	silent := listenAt(t, "127.0.0.1")
	defer silent.Close()
	began := time.Now()
	n := open(t, 1)
	_, err = n.DialTimeout(silent.TCPListener.Addr().String(), 50*time.Millisecond)
	if failed, ok := err.(*net.OpError); !ok || failed.Op != "read" || !timedOut(err) || time.Since(began) > patience/2 { //nolint:errorlint // as memberlist does it
		t.Errorf("dialling somebody silent: %#v", err)
	}
}
