package audit

import (
	"slices"
	"testing"
	"time"

	"github.com/dupip/dupip/agent/books"
)

// Incident I4, Azure CNS #4350, without ranges, because its endpoints have none: the sandbox of a pod in a crash loop is made again
// with another address, and the old endpoint stays.
func TestAzureCNS(t *testing.T) {
	const ip, next = "10.1.2.5", "10.1.2.6"
	azure := book("pods", func(b *books.Reserved) {
		b.Book, b.Store, b.Ranges = books.BookAzureCNS, "/var/run/azure-cns/azure-endpoints.json", nil
	})
	gone := func(r *reading) { r.sandboxes.Ready = map[string]bool{db: true} }
	begin := at(0, "", azure, live(ip, web), reserved("pods", ip, web))
	both := []change{azure, gone, live(next, db), reserved("pods", ip, web), reserved("pods", next, db)}
	for _, p := range []string{"azure-vnet", "cilium-cni"} {
		all := append(slices.Clone(both), plugin(p))
		for what, steps := range map[string][]step{
			"the sandbox is made again, and the old endpoint stays": {
				begin, at(time.Second, "", all...), at(grace, "", all...), at(time.Second+grace, "unheld 10.1.2.5 pods a64", all...),
			},
			"and is released in time": {
				begin, at(time.Second, "", all...), at(grace, "", azure, plugin(p), gone, live(next, db), reserved("pods", next, db)),
				at(2*grace, "", azure, plugin(p), gone, live(next, db), reserved("pods", next, db)),
			},
			"a clean-up frees the address of a pod that runs": {
				begin, at(time.Second, "", azure, plugin(p), live(ip, web)), at(2*time.Second, "unreserved 10.1.2.5 pods a64", azure, plugin(p), live(ip, web)),
			},
			"and another pod gets it": {
				begin, at(time.Second, "", azure, plugin(p), live(ip, web), reserved("pods", ip, db)),
				at(2*time.Second, "mismatched 10.1.2.5 pods a64 b64", azure, plugin(p), live(ip, web), reserved("pods", ip, db)),
			},
			"the file cannot be read for a while": {
				begin, at(time.Second, "", azure, plugin(p), live(ip, web), unreadable), at(time.Hour, "", azure, plugin(p), live(ip, web), unreadable),
			},
			"the address is in two endpoints": {
				begin, at(time.Second, "", azure, plugin(p), live(ip, web), reserved("pods", ip, "")),
				at(time.Hour, "", azure, plugin(p), live(ip, web), reserved("pods", ip, "")),
			},
		} {
			c := comparison{grace: grace}
			for n, s := range steps {
				findings, _, _ := c.add(newReading(start.Add(s.after), s.changes...))
				if got := text(findings); got != s.want {
					t.Errorf("%s: %s, reading %d: %q, want %q", p, what, n+1, got, s.want)
				}
				for _, f := range findings {
					if f.Book != "azure-cns" {
						t.Errorf("book %q", f.Book)
					}
				}
			}
		}
	}
}
