package query

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dupip/dupip/cmd/internal/cli"
)

// about is the README.txt of an archive.
const about = `What dupip %s knew about %s at %s. All times are UTC, those of explain.txt %s, by the clock of the agent that was asked. Other nodes send ages, so frames from there are late by the time that the answer took: mostly some milliseconds.
frames.pcapng: what each holder sent, as its node saw it at the pod's interface, from the suspicion on. ARP and NDP are whole, of all other packets only the headers are there. Each holder is an interface with a comment: tshark -r frames.pcapng
explain.txt, explain.json: the history of the address, probes and answers, routes, books, judgement. nodes.json: the nodes and their versions.
%s
SHA256SUMS: the hashes of all other files: sha256sum -c SHA256SUMS
`

// archive makes a tar.gz with one folder.
func (p *Program) archive(folder string, c *collected) ([]byte, error) {
	var sums, all bytes.Buffer
	zipped := gzip.NewWriter(&all)
	archive := tar.NewWriter(zipped)
	add := func(name string, data []byte) error {
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(data), name)
		err := archive.WriteHeader(&tar.Header{Name: folder + "/" + name, Mode: 0o600, Size: int64(len(data)), ModTime: c.at.Truncate(time.Second)})
		if err == nil {
			_, err = archive.Write(data)
		}
		return err
	}
	var nodes, history, text bytes.Buffer
	errs := []error{
		cli.Show(p.printer(&nodes), cli.JSON, c.nodes, (*cli.Printer).Nodes),
		cli.Show(p.printer(&history), cli.JSON, c.explanation, (*cli.Printer).Explanation),
		cli.Show(p.printer(&text), cli.Table, c.explanation, (*cli.Printer).Explanation),
		add("frames.pcapng", pcapng(p.Name+" "+p.Version, c.captures.Captures, c.names())),
		add("explain.txt", text.Bytes()), add("explain.json", history.Bytes()), add("nodes.json", nodes.Bytes()),
	}
	missing := strings.Join(c.missing(), " ")
	if missing == "" {
		missing = "Nothing is missing."
	}
	readme := fmt.Sprintf(about, p.Version, c.ip, c.at.Format(time.RFC3339), c.at.Local().Format("MST (UTC-07:00)"), missing)
	errs = append(errs, add("README.txt", []byte(readme)), add("SHA256SUMS", sums.Bytes()), archive.Close(), zipped.Close())
	return all.Bytes(), errors.Join(errs...)
}
