package query

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// FuzzPcapng: whatever a pod sends and a node says of it, the capture file can be read again: each block has its size at both ends, and the
// frames are those that the node sent, each with the holder that it is of.
func FuzzPcapng(f *testing.F) {
	f.Add("n2", "veth1", "shop/web", []byte("\x02\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x02\x08\x06"), 1500, int64(1e18), 3)
	f.Add("\x1b[2J", "", "a\u202eb", []byte{}, -1, int64(-1), -3)
	f.Add("n", "v", "p", make([]byte, 300), 1<<40, int64(0), 1<<40)
	ip := netip.MustParseAddr("10.0.0.7")
	f.Fuzz(func(t *testing.T, node, device, pod string, data []byte, length int, at int64, lost int) {
		now := time.Now()
		frame := document.Frame{At: now.Add(-time.Duration(at & (1<<50 - 1))), Length: length, Data: data}
		said := document.Answer{At: now, Captures: []document.Capture{
			{Network: "default", IP: ip, Conflict: pod, Holder: document.Holder{Interface: device}, Lost: lost, Frames: []document.Frame{frame, {At: now, Data: bytes.Clone(data)}}},
			{Network: "default", IP: ip, Holder: document.Holder{Interface: pod}, Frames: []document.Frame{frame}},
		}}
		packed, err := said.Encode(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		a, _, err := document.DecodeAnswer(packed, document.Text(node, 253), "boot", now)
		if err != nil || len(a.Captures) != 2 {
			t.Fatalf("%d captures, %v", len(a.Captures), err)
		}
		names := []string{document.Text(pod, 300), "other"}
		frames, holders := readPcapng(t, pcapng("dupip", a.Captures, names))
		if want := []string{fmt.Sprintf("%s/%s (%s)", a.Node, a.Captures[0].Interface, names[0]), fmt.Sprintf("%s/%s (other)", a.Node, a.Captures[1].Interface)}; fmt.Sprint(holders) != fmt.Sprint(want) {
			t.Errorf("holders %q, want %q", holders, want)
		}
		count := 0
		for n, c := range a.Captures {
			for _, f := range c.Frames {
				if count++; frames[fmt.Sprint(n, f.At.UnixNano(), max(f.Length, len(f.Data)), string(f.Data))] == 0 {
					t.Errorf("a frame of holder %d is missing: %v", n, f)
				}
			}
		}
		for _, times := range frames {
			count -= times
		}
		if count != 0 {
			t.Errorf("%d frames are missing", count)
		}
	})
}

// readPcapng reads a file as draft-ietf-opsawg-pcapng has it. It returns how often each frame is there, and the names of the interfaces.
func readPcapng(t *testing.T, file []byte) (frames map[string]int, holders []string) {
	t.Helper()
	le := binary.LittleEndian
	frames = make(map[string]int)
	for first := true; len(file) > 0; first = false {
		if len(file) < 12 || int(le.Uint32(file[4:])) > len(file) {
			t.Fatalf("a block that ends: %x", file)
		}
		kind, size := le.Uint32(file), int(le.Uint32(file[4:]))
		if size < 12 || size%4 != 0 || int(le.Uint32(file[size-4:])) != size || first != (kind == sectionBlock) {
			t.Fatalf("block %x of %d bytes", kind, size)
		}
		body := file[8 : size-4]
		file = file[size:]
		var options []byte
		switch kind {
		case sectionBlock:
			options = body[16:]
		case interfaceBlock:
			options = body[8:]
			holders = append(holders, string(options[4:4+le.Uint16(options[2:])])) // its name is the first
		case packetBlock:
			captured := int(le.Uint32(body[12:]))
			frames[fmt.Sprint(le.Uint32(body), int64(uint64(le.Uint32(body[4:]))<<32|uint64(le.Uint32(body[8:]))), le.Uint32(body[16:]), string(body[20:20+captured]))]++
			options = body[20+captured+(-captured&3):]
		}
		for end := false; !end; {
			code, length := le.Uint16(options), int(le.Uint16(options[2:]))
			if text := string(options[4 : 4+length]); (code == optionComment || code == optionName && kind == interfaceBlock) && detector.Printable(text) != text {
				t.Errorf("a text is %q", text)
			}
			options, end = options[4+length+(-length&3):], code == optionEnd
		}
		if len(options) > 0 {
			t.Errorf("%d bytes follow the options", len(options))
		}
	}
	return frames, holders
}
