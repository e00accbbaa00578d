package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dupip/dupip/cmd/internal/cli"
	"github.com/dupip/dupip/cmd/internal/query"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/say"
)

const (
	// logLines of each pod are in a dump, and as many of each what ran there before.
	logLines = 500
	// maxPart is how much of what kubectl prints a file of a dump has, from the end.
	maxPart = 4 << 20
)

// aboutDump is the README.txt of a dump.
const aboutDump = `dupip in namespace %s, by kubectl dupip %s at %s.

doctor.json: what "kubectl dupip doctor" found. nodes.json, conflicts.json, audit.json, status/: the documents of a reporter and of agents.
versions.json, workloads.json, pods.json, events.txt: of Kubernetes, in that namespace only.
logs/: the last %d lines of the log of each of these pods, and of what ran there before.

It has no packet and no Secret. It has addresses, MACs, and names of nodes, namespaces, pods and who works on conflicts%s. Read it before you give it away.
%s
SHA256SUMS: the hashes of all other files: sha256sum -c SHA256SUMS
`

func (p *plugin) newSysdump() *cobra.Command {
	var file query.ArchiveFile
	redact := false
	cmd := &cobra.Command{
		Use:   "sysdump",
		Short: "Write what a report of a fault needs into one file",
		Long: fmt.Sprintf(`Write what a report of a fault needs into one archive (tar.gz): versions, the doctor's findings, nodes, conflicts, audit and status, and the last lines `+
			`of the logs of up to %d agents, those that are not ready first, and of the reporters. It has no packet and no Secret.

What you may not read is missing, and README.txt says so.`, maxExamined),
		Example: `  kubectl dupip sysdump
  kubectl dupip sysdump --redact -o /tmp/dupip.tar.gz`,
		Args: query.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := file.Check(); err != nil {
				return err
			}
			d, err := p.dump(cmd.Context())
			if err != nil {
				return err
			}
			replaced := ", which --redact would replace"
			if redact {
				replaced = ". Names of nodes, namespaces, pods and people that dupip's documents have are replaced: equal ones by equal words"
				d.redact(p.namespace)
			}
			folder := "dupip-sysdump-" + d.at.Format("20060102T150405Z")
			archive := query.NewArchive(folder, d.at)
			for _, f := range d.files {
				archive.Add(f.name, f.data)
			}
			data, err := archive.Close(fmt.Sprintf(aboutDump, p.namespace, p.Version, d.at.Format(time.RFC3339), logLines, replaced, d.lacks()))
			if err != nil {
				return err
			}
			out, name, err := file.Write(cmd, folder, data)
			if err == nil {
				printer := cli.NewPrinter(out)
				out = cli.ForLocale(out)
				for _, line := range []string{fmt.Sprintf("%s: %s.", detector.Printable(name), say.Plural(len(d.files), "file", "files")), d.lacks()} {
					fmt.Fprintln(out, strings.TrimSuffix(printer.Wrap(line), "\n"))
				}
			}
			return err
		},
	}
	file.Flag(cmd, "dupip-sysdump-TIME.tar.gz")
	cmd.Flags().BoolVar(&redact, "redact", false, "replace the names of nodes, namespaces, pods and people")
	return cmd
}

// dump is what was collected.
type dump struct {
	at      time.Time
	files   []dumped
	missing []dumped // with the error as data
}

type dumped struct {
	name string
	data []byte
}

// lacks says in one sentence what is missing.
func (d *dump) lacks() string {
	var parts []string
	for _, f := range d.missing {
		parts = append(parts, fmt.Sprintf("%s (%s)", f.name, f.data))
	}
	if parts == nil {
		return "Nothing is missing."
	}
	return "Missing: " + strings.Join(parts, "; ") + "."
}

func (d *dump) add(name string, data []byte, err error) {
	if err != nil {
		d.missing = append(d.missing, dumped{name, []byte(detector.Printable(err.Error()))})
		return
	}
	d.files = append(d.files, dumped{name, data})
}

// addDocument adds JSON.
func addDocument[T any](d *dump, name string, doc T, err error) {
	if err == nil {
		var data []byte
		data, err = json.MarshalIndent(doc, "", "  ")
		d.add(name, append(data, '\n'), err)
		return
	}
	d.add(name, nil, err)
}

func (p *plugin) dump(ctx context.Context) (*dump, error) {
	all, err := p.list(ctx, "pods", "--selector="+parts)
	if err != nil {
		return nil, err
	}
	d := &dump{at: time.Now().UTC()}
	chosen := firstOf(all)
	checks, err := p.examine(ctx, nil)
	addDocument(d, "doctor.json", document.NewDoctorReport(checks), err)
	p.addDocuments(ctx, d, chosen)

	text := func(name string, args ...string) {
		data, err := p.text(ctx, args...)
		d.add(name, data, err)
	}
	text("versions.json", "version", "--output=json")
	text("workloads.json", "get", "daemonsets,statefulsets,configmaps", "--selector="+parts, "--output=json")
	text("events.txt", "get", "events", "--sort-by=.metadata.creationTimestamp")
	names := make([]string, len(chosen))
	for i, pod := range chosen {
		names[i] = pod.Metadata.Name
	}
	if len(names) > 0 {
		text("pods.json", append([]string{"get", "pods", "--output=json"}, names...)...)
	}
	for _, pod := range chosen {
		name := pod.Metadata.Name
		logs := []string{"logs", name, "--timestamps", fmt.Sprintf("--tail=%d", logLines)}
		text("logs/"+name+".txt", logs...)
		if pod.restarted() {
			text("logs/"+name+"-previous.txt", append(logs, "--previous")...)
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return d, nil
}

// firstOf returns all reporters, and the first agents.
func firstOf(pods []object) (chosen []object) {
	agents := 0
	slices.SortStableFunc(pods, func(a, b object) int { return cmp.Compare(rank(a), rank(b)) })
	for _, pod := range pods {
		switch pod.Metadata.Labels[component] {
		case "agent":
			if agents++; agents <= maxExamined {
				chosen = append(chosen, pod)
			}
		case "reporter":
			chosen = append(chosen, pod)
		}
	}
	return chosen
}

// addDocuments adds those of a reporter, and the status of these agents.
func (p *plugin) addDocuments(ctx context.Context, d *dump, pods []object) {
	f, err := p.connect(ctx, 0)
	if err != nil {
		d.add("nodes.json, conflicts.json, audit.json, status", nil, err)
		return
	}
	defer f.stop()
	client := f.client()
	nodes, err := client.Nodes(ctx, document.Query{})
	addDocument(d, "nodes.json", nodes, err)
	conflicts, err := client.Conflicts(ctx, document.Query{All: true, Cluster: true})
	addDocument(d, "conflicts.json", conflicts, err)
	audit, err := client.Audit(ctx, document.Query{Cluster: true})
	addDocument(d, "audit.json", audit, err)
	for _, pod := range pods {
		if node := pod.Spec.NodeName; pod.Metadata.Labels[component] == "agent" && node != "" {
			status, err := client.Status(ctx, document.Query{Node: node})
			addDocument(d, "status/"+node+".json", status, err)
		}
	}
}

// text returns the end of what kubectl prints.
func (p *plugin) text(ctx context.Context, args ...string) ([]byte, error) {
	cmd, stderr := p.command(ctx, args...)
	out := &messages{most: maxPart}
	cmd.Stdout = out
	if err := cmd.Run(); err != nil {
		return nil, p.failure(ctx, err, stderr)
	}
	return bytes.Clone(out.text), nil
}
