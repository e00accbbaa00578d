package report

import (
	"net/netip"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/detector"
)

// bookStatus reads what IPAM has reserved.
func (r *Report) bookStatus() (list []api.BookStatus, problem string) {
	if r.Books == nil {
		return nil, ""
	}
	all, err := r.Books.Read()
	for _, book := range all {
		b := api.BookStatus{Kind: book.Book, Network: book.Network, Store: book.Store, Reserved: len(book.Reservations), Error: text(book.Err)}
		for _, covered := range book.Ranges {
			b.Ranges = append(b.Ranges, covered.String())
		}
		list = append(list, b)
	}
	return list, text(err)
}

// books returns what the books of this node say of an address. sandboxes are the pods by the short ids of their sandboxes.
func (r *Report) books(ip netip.Addr, sandboxes map[string]detector.Pod) (list []api.Book) {
	if r.Books == nil {
		return nil
	}
	all, err := r.Books.Read()
	if err != nil {
		list = append(list, api.Book{Kind: "host-local", Error: err.Error()})
	}
	for _, book := range all {
		b := api.Book{Kind: book.Book, Network: book.Network, Covers: book.Covers(ip), Error: text(book.Err)}
		found, reserved := book.Reservations[ip]
		if reserved {
			id := found.Sandbox[:min(len(found.Sandbox), pods.ShortID)]
			b.Reservation = &api.Reservation{Sandbox: id, Pod: api.NewPod(sandboxes[id]), Since: found.Since}
		}
		if reserved || b.Covers || b.Error != "" {
			list = append(list, b)
		}
	}
	return list
}
