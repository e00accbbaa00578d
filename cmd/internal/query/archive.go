package query

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dupip/dupip/cmd/internal/cli"
)

// about is the README.txt of an archive.
const about = `What dupip %s knew about %s at %s. All times are UTC, those of explain.txt %s, by the clock of the agent that was asked. Other nodes send ages, so frames from there are late by the time that the answer took: mostly some milliseconds.
frames.pcapng: what each holder sent, as its node saw it at the pod's interface, from the suspicion on. ARP and NDP are whole, of all other packets only the headers are there. Each holder is an interface with a comment: tshark -r frames.pcapng
explain.txt, explain.json: the history of the address, probes and answers, routes, books, judgement. nodes.json: the nodes and their versions.
%s
SHA256SUMS: the hashes of all other files: sha256sum -c SHA256SUMS
`

// archive makes one of what was collected.
func (p *Program) archive(folder string, c *collected) ([]byte, error) {
	var nodes, history, text bytes.Buffer
	err := errors.Join(
		cli.Show(p.printer(&nodes), cli.JSON, c.nodes, (*cli.Printer).Nodes),
		cli.Show(p.printer(&history), cli.JSON, c.explanation, (*cli.Printer).Explanation),
		cli.Show(p.printer(&text), cli.Table, c.explanation, (*cli.Printer).Explanation),
	)
	if err != nil {
		return nil, err
	}
	missing := strings.Join(c.missing(), " ")
	if missing == "" {
		missing = "Nothing is missing."
	}
	a := NewArchive(folder, c.at)
	a.Add("frames.pcapng", pcapng(p.Name+" "+p.Version, c.captures.Captures, c.names()))
	a.Add("explain.txt", text.Bytes())
	a.Add("explain.json", history.Bytes())
	a.Add("nodes.json", nodes.Bytes())
	return a.Close(fmt.Sprintf(about, p.Version, c.ip, c.at.Format(time.RFC3339), c.at.Local().Format("MST (UTC-07:00)"), missing))
}

// Archive is a tar.gz with one folder. Use [NewArchive].
type Archive struct {
	folder    string
	at        time.Time
	all, sums bytes.Buffer
	zipped    *gzip.Writer
	tar       *tar.Writer
	errs      []error
}

// NewArchive returns an empty archive whose files have this time.
func NewArchive(folder string, at time.Time) *Archive {
	a := &Archive{folder: folder, at: at.Truncate(time.Second)}
	a.zipped = gzip.NewWriter(&a.all)
	a.tar = tar.NewWriter(a.zipped)
	return a
}

// Add adds a file. [Archive.Close] returns its error.
func (a *Archive) Add(name string, data []byte) {
	fmt.Fprintf(&a.sums, "%x  %s\n", sha256.Sum256(data), name)
	err := a.tar.WriteHeader(&tar.Header{Name: a.folder + "/" + name, Mode: 0o600, Size: int64(len(data)), ModTime: a.at})
	if err == nil {
		_, err = a.tar.Write(data)
	}
	a.errs = append(a.errs, err)
}

// Close adds README.txt and the checksums of all files, and returns the archive.
func (a *Archive) Close(readme string) ([]byte, error) {
	a.Add("README.txt", []byte(readme))
	a.Add("SHA256SUMS", bytes.Clone(a.sums.Bytes()))
	err := errors.Join(append(a.errs, a.tar.Close(), a.zipped.Close())...)
	return a.all.Bytes(), err
}

// ArchiveFile is the file that a command writes an archive to.
type ArchiveFile string

// Flag adds the flag that names it; usual is the name without the flag, for people.
func (f *ArchiveFile) Flag(cmd *cobra.Command, usual string) {
	// Not --output: the variable of that is a format.
	cmd.Flags().StringVarP((*string)(f), "file", "o", "", "the `file` to write, which must not be there yet; - is standard output (default: "+usual+")")
	CompletePaths(cmd, "file")
}

// Check refuses one that is there, before anything is asked.
func (f *ArchiveFile) Check() error {
	if _, err := os.Lstat(string(*f)); *f != "" && *f != "-" && err == nil {
		return fmt.Errorf("%s is there already: name another file with -o", *f)
	}
	return nil
}

// Write writes the archive, by default to folder.tar.gz. It returns where to tell that, and the name for people.
func (f *ArchiveFile) Write(cmd *cobra.Command, folder string, archive []byte) (told io.Writer, name string, err error) {
	name = cmp.Or(string(*f), folder+".tar.gz")
	if name == "-" {
		_, err = cmd.OutOrStdout().Write(archive)
		return cmd.ErrOrStderr(), name, err
	}
	return cmd.OutOrStdout(), name, writeNew(name, archive)
}

// writeNew writes a new file that only its owner reads, or none.
func writeNew(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("%w; name another file with -o, or - for standard output", err)
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(name)
	}
	return err
}
