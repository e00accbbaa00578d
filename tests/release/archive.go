package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// tarGz returns an archive of files by name, all of the time created. The plugin is executable.
func tarGz(files map[string][]byte, created time.Time) ([]byte, error) {
	var archive bytes.Buffer
	zip := gzip.NewWriter(&archive)
	w := tar.NewWriter(zip)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		h := tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, ModTime: created, Size: int64(len(files[name]))}
		if name == pluginName {
			h.Mode = 0o755
		}
		if err := w.WriteHeader(&h); err != nil {
			return nil, err
		}
		if _, err := w.Write(files[name]); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(w.Close(), zip.Close()); err != nil {
		return nil, err
	}
	return archive.Bytes(), nil
}

// untar returns the regular files of an archive by name.
func untar(r io.Reader) (map[string][]byte, error) {
	files := make(map[string][]byte)
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("reading an archive: %w", err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if files[strings.TrimPrefix(path.Clean("/"+h.Name), "/")], err = io.ReadAll(t); err != nil {
			return nil, fmt.Errorf("reading %s of an archive: %w", h.Name, err)
		}
	}
	// To the end, where a checksum may be.
	_, err := io.Copy(io.Discard, r)
	return files, err
}

// untarGz is [untar] of a compressed archive.
func untarGz(archive []byte) (map[string][]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, fmt.Errorf("reading an archive: %w", err)
	}
	return untar(r)
}
