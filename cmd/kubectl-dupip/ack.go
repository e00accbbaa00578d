package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/dupip/dupip/document"
)

// toldTime is how long the reporter may take to tell the agents: it looks every few seconds.
const toldTime = 30 * time.Second

// acknowledge writes into the ConfigMap that the reporter reads, because that needs a right of its own, and waits until the agents know.
func (p *plugin) acknowledge(cmd *cobra.Command, q document.Query) (doc document.Conflicts, err error) {
	ctx := cmd.Context()
	f, err := p.connect(ctx, 0)
	if err != nil {
		return doc, err
	}
	defer f.stop()
	asked := document.Query{IP: q.IP, Network: q.Network, Cluster: true, State: "confirmed"}
	if doc, err = f.client().Conflicts(ctx, asked); err != nil || len(doc.Conflicts) == 0 {
		return doc, err
	}
	maps, err := p.list(ctx, "configmaps", "--selector="+parts+",dupip.io/component=acknowledgements")
	if err != nil {
		return doc, err
	}
	if len(maps) != 1 {
		return doc, fmt.Errorf("namespace %s has %d ConfigMaps for acknowledgements, and one is needed: is the chart older than this plugin?", p.namespace, len(maps))
	}
	ack := document.Ack{By: q.Ack.By, Why: q.Ack.Why, At: time.Now().UTC().Truncate(time.Second), Seconds: q.Ack.Seconds}
	patch, err := document.PatchOfAcks(maps[0].Data, q.IP, q.Network, ack)
	if err != nil {
		return doc, err
	}
	data, err := json.Marshal(map[string]any{"data": patch})
	if err != nil {
		return doc, err
	}
	if _, err := p.text(ctx, "patch", "configmap", maps[0].Metadata.Name, "--type=merge", "--patch="+string(data), "--output=name"); err != nil {
		return doc, err
	}
	for deadline := time.Now().Add(toldTime); ; {
		if doc, err = f.client().Conflicts(ctx, asked); err != nil || told(doc, q) {
			return doc, err
		}
		if time.Now().After(deadline) {
			return doc, errors.New("it is written, but the agents do not have it yet: \"kubectl dupip doctor\" may say why")
		}
		select {
		case <-ctx.Done():
			return doc, errors.New("interrupted")
		case <-time.After(time.Second):
		}
	}
}

// told reports whether all agents have what was said.
func told(doc document.Conflicts, q document.Query) bool {
	for _, c := range doc.Conflicts {
		a := c.Acknowledged
		if (a == nil) != (q.Ack.Seconds == 0) || a != nil && (a.By != q.Ack.By || a.Why != q.Ack.Why) {
			return false
		}
	}
	return true
}
