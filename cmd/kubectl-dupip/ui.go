package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/dupip/dupip/cmd/internal/query"
)

const (
	// lookEvery is how often the page's connection is tried: a node that was switched off does not close it.
	lookEvery = 10 * time.Second
	// againAfter is how long it waits before it connects again.
	againAfter = 2 * time.Second
)

// serve forwards a port until the command is interrupted. If the reporter goes away, another one takes its place.
func (p *plugin) serve(cmd *cobra.Command, port int) error {
	ctx, first, before := cmd.Context(), true, ""
	for {
		f, err := p.connect(ctx, port)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && first:
			return err
		case err != nil:
			if text := err.Error(); text != before { // once, while it stays the same
				before = text
				query.PrintError(cmd.ErrOrStderr(), p.Name, err)
			}
		case first:
			fmt.Fprintf(cmd.OutOrStdout(), "The page is at http://%s/ (Ctrl-C ends it)\n", f.address())
		default:
			fmt.Fprintln(cmd.ErrOrStderr(), "connected again")
		}
		if err == nil {
			first, before, port = false, "", f.port
			p.watch(cmd, f)
			if ctx.Err() != nil {
				return nil
			}
			fmt.Fprintln(cmd.ErrOrStderr(), "the reporter has gone; looking for another one")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(againAfter):
		}
	}
}

// watch returns when the reporter does not answer any more, or the command is interrupted.
func (p *plugin) watch(cmd *cobra.Command, f *forward) {
	for look := time.Tick(lookEvery); ; {
		select {
		case <-cmd.Context().Done():
			return
		case <-f.done:
			return
		case <-look:
			if f.answers(cmd.Context()) != nil {
				f.stop()
				return
			}
		}
	}
}
