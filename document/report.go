package document

import (
	"encoding/json"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/internal/bounds"
)

// report is a conflict as its node tells a reporter.
type report struct {
	At       time.Time `json:"at"`
	Conflict Conflict  `json:"conflict"`
}

// reportSize bounds the JSON of a report: it has [MaxHolders] holders at most, whose texts are names.
var reportSize = size{bytes: 256 << 10, elements: 4 * MaxHolders, fields: 64 * MaxHolders}

var tooLong = bounds.New("report shortened to fit a packet")

// EncodeReport returns a conflict as its node tells a reporter, in JSON packed by gzip, in at most limit bytes. From one that is too
// long it leaves out facts, the most important ones last, then what books say, holders, the last ones, and the ends of texts. at is now.
func (c *Conflict) EncodeReport(at time.Time, limit int) ([]byte, error) {
	r := report{at.Round(0), *c}
	text, packed, err := pack(r, small)
	fits := func() bool {
		had, _ := measure(text)
		return err != nil || len(packed) <= limit && had.times(reportSize) <= 1
	}
	if fits() {
		return packed, err
	}
	tooLong.Exceeded(1)
	r = report{} // a copy: c stays as it is
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("encoding a document: %w", err)
	}
	for _, leave := range []func(){
		func() {
			changeFacts(r.Conflict.Holders, func(f *Facts) { f.NetnsPath, f.NetnsInode, f.Process = "", 0, nil })
		},
		func() { r.Conflict.Books = nil },
		func() { changeFacts(r.Conflict.Holders, func(f *Facts) { *f = Facts{Behind: f.Behind} }) },
	} {
		if fits() {
			break
		}
		leave()
		text, packed, err = pack(r, small)
	}
	if all := r.Conflict.Holders; !fits() && len(all) > 2 {
		with := func(n int) bool {
			r.Conflict.Holders = all[:n]
			text, packed, err = pack(r, small)
			return fits()
		}
		with(2 + sort.Search(len(all)-3, func(more int) bool { return !with(3 + more) }))
	}
	for longest := MaxName / 2; !fits(); longest /= 2 {
		if longest < 7 {
			return nil, fmt.Errorf("a report of a conflict needs %d bytes", len(packed))
		}
		shorten(&r.Conflict, longest)
		text, packed, err = pack(r, small)
	}
	return packed, err
}

// DecodeReport is the reverse of [EncodeReport]: what a node says, and said at that time on the clock of this one.
func DecodeReport(packed []byte, node string, at time.Time) (Conflict, error) {
	var r report
	_, err := unpack(packed, &r, reportSize, func() time.Time { return r.At }, at)
	if err == nil && !r.Conflict.saidBy(cluster.NodeName(node), cluster.BootID(node)) {
		err = errors.New("it is not valid")
	}
	if err != nil {
		return Conflict{}, fmt.Errorf("reading the report of node %s: %w", node, err)
	}
	return r.Conflict, nil
}
