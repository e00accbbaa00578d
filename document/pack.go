package document

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// quick and small pack answers and reports. Each of their writers has about a megabyte.
var quick, small = packers(gzip.BestSpeed), packers(gzip.BestCompression)

// readers unpack both. Each has 40 kB, which many small answers would make anew.
var readers = sync.Pool{New: func() any { return new(gzip.Reader) }}

func packers(level int) *sync.Pool {
	return &sync.Pool{New: func() any {
		w, err := gzip.NewWriterLevel(io.Discard, level)
		if err != nil {
			panic(err) // there is no such level
		}
		return w
	}}
}

// pack returns a document in JSON, as it is and packed by gzip.
func pack(doc any, by *sync.Pool) (text, packed []byte, err error) {
	if text, err = json.Marshal(doc); err != nil {
		return nil, nil, fmt.Errorf("encoding a document: %w", err)
	}
	var b bytes.Buffer
	w := by.Get().(*gzip.Writer)
	defer by.Put(w)
	w.Reset(&b)
	if _, err = w.Write(text); err == nil {
		err = w.Close()
	}
	return text, b.Bytes(), err
}

// unpack is the reverse of pack for what another node sent: doc gets what is within the bounds, with clean texts, and with times as if
// made had been now.
func unpack(packed []byte, doc any, most size, made func() time.Time, now time.Time) (had size, err error) {
	r := readers.Get().(*gzip.Reader)
	defer readers.Put(r)
	if err = r.Reset(bytes.NewReader(packed)); err != nil {
		return size{}, err
	}
	text, err := io.ReadAll(io.LimitReader(r, int64(most.bytes)+1))
	if err != nil {
		return size{}, err
	}
	had, ok := measure(text)
	if !ok || had.times(most) > 1 {
		return size{}, errors.New("it is too long or too deep, or has too long strings or lists")
	}
	if err = json.Unmarshal(text, doc); err != nil {
		return size{}, errors.New(Text(err.Error(), maxSentence)) // it quotes the text
	}
	Clean(doc, now.Sub(made()), now)
	return had, nil
}

// size is how much a JSON text has: bytes, elements of all lists, and fields of all objects.
type size struct{ bytes, elements, fields int }

// times returns how many times more that is than most.
func (s size) times(most size) float64 {
	return max(float64(s.bytes)/float64(most.bytes), float64(s.elements)/float64(most.elements), float64(s.fields)/float64(most.fields))
}

// memory is what the document takes, about, in bytes. Empty elements take more than their text.
func (s size) memory() int { return max(s.bytes, 512*s.elements) }

// The bounds of all JSON texts of other nodes: depth, and bytes of a string.
const (
	maxDepth  = 12
	maxString = 8 << 10
)

// measure returns the size of a text, which may be no JSON. ok says that nothing is deeper than maxDepth, and no string longer than
// maxString.
func measure(text []byte) (s size, ok bool) {
	var lists [maxDepth + 1]bool // whether the value at this depth is a list
	s.bytes = len(text)
	depth := 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '"':
			begin := i
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
			if i-begin > maxString {
				return s, false
			}
		case '[', '{', ',':
			if c != ',' {
				if depth++; depth > maxDepth {
					return s, false
				}
				lists[depth] = c == '['
			}
			if lists[depth] {
				s.elements++
			} else {
				s.fields++
			}
		case ']', '}':
			depth = max(depth-1, 0)
		}
	}
	return s, true
}
