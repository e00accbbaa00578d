package query

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/dupip/dupip/document"
)

// The blocks and options of pcapng (draft-ietf-opsawg-pcapng) that a capture file here has.
const (
	sectionBlock, interfaceBlock, packetBlock = 0x0a0d0d0a, 1, 6

	optionEnd, optionComment = 0, 1
	optionProgram            = 4    // of the section
	optionName, optionTicks  = 2, 9 // of an interface
	optionFlags              = 2    // of a packet

	ethernet    = 1
	nanoseconds = "\x09" // ten to the power of -9
	inbound     = "\x01\x00\x00\x00"
)

// pcapng makes a capture file: an interface for each holder, with the names of these, and the frames in the order of time. The
// texts in captures are sanitized already.
func pcapng(program string, captures []document.Capture, names []string) []byte {
	le := binary.LittleEndian
	head := le.AppendUint32(nil, 0x1a2b3c4d)
	head = le.AppendUint16(le.AppendUint16(head, 1), 0) // the version
	head = le.AppendUint64(head, 1<<64-1)               // of any length
	file := appendBlock(nil, sectionBlock, appendOptions(head, option{optionProgram, program}))
	type packet struct {
		holder int
		document.Frame
	}
	var packets []packet
	for n, v := range captures {
		comment := fmt.Sprintf("MAC %s, %s, conflict %s", v.MAC, names[n], v.Conflict)
		if v.Lost > 0 {
			comment += fmt.Sprintf(", %d frames lost", v.Lost)
		}
		head := le.AppendUint16(nil, ethernet)
		head = le.AppendUint32(le.AppendUint16(head, 0), 0) // no limit of the length
		file = appendBlock(file, interfaceBlock, appendOptions(head,
			option{optionName, fmt.Sprintf("%s/%s (%s)", v.Node, v.Interface, names[n])},
			option{optionTicks, nanoseconds}, option{optionComment, comment}))
		for _, f := range v.Frames {
			packets = append(packets, packet{n, f})
		}
	}
	slices.SortStableFunc(packets, func(x, y packet) int { return x.At.Compare(y.At) })
	for _, f := range packets {
		at := uint64(f.At.UnixNano())
		head := le.AppendUint32(nil, uint32(f.holder))
		head = le.AppendUint32(le.AppendUint32(head, uint32(at>>32)), uint32(at))
		head = le.AppendUint32(le.AppendUint32(head, uint32(len(f.Data))), uint32(max(f.Length, len(f.Data))))
		file = appendBlock(file, packetBlock, appendOptions(padded(append(head, f.Data...)), option{optionFlags, inbound}))
	}
	return file
}

// option is an option of a block.
type option struct {
	code  uint16
	value string
}

func appendOptions(b []byte, options ...option) []byte {
	for _, o := range append(options, option{code: optionEnd}) {
		b = binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(b, o.code), uint16(len(o.value)))
		b = padded(append(b, o.value...))
	}
	return b
}

func appendBlock(b []byte, kind uint32, body []byte) []byte {
	length := uint32(len(body) + 12)
	b = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(b, kind), length)
	return binary.LittleEndian.AppendUint32(append(b, body...), length)
}

// padded appends zeros up to a multiple of four bytes.
func padded(b []byte) []byte { return append(b, make([]byte, -len(b)&3)...) }
