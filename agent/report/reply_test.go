package report

import (
	"testing"
	"testing/synctest"

	"github.com/dupip/dupip/detector/cluster"
)

// While as many answers are encoded as may be at a time, another one waits, and it is sent afterwards.
func TestFewAnswersAreEncoded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReport(t, &fakeCluster{})
		for range cap(r.encoding) {
			r.encoding <- struct{}{}
		}
		packed := make(chan []byte, 1)
		r.Reply(cluster.Query{Kind: cluster.QueryBindings, Answer: packed, Limit: 1 << 20})
		if synctest.Wait(); len(packed) != 0 {
			t.Error("it did not wait")
		}
		<-r.encoding
		if synctest.Wait(); len(packed) != 1 || len(r.encoding) != cap(r.encoding)-1 {
			t.Errorf("%d answers are sent, %d are encoded", len(packed), len(r.encoding))
		}
	})
}
