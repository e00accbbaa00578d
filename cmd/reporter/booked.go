package main

import (
	"context"
	"time"
)

// answering is how lately the API server must have answered, so that books are compared with the wire.
const answering = 5 * time.Second

// answered reports whether the API server answers.
func (r *reporter) answered() bool {
	at, err := r.election.State()
	return err == nil && time.Since(at) < answering
}

// readBooks reads the books of the API server as long as this replica leads.
func (r *reporter) readBooks(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); r.books.Run(ctx) }()
	r.unbook = func() { cancel(); <-done; r.unbook = nil }
}
