// Package ownfile reads files that this program has written, and that something else may have replaced since.
package ownfile

import (
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Read reads a regular file of at most limit bytes. It follows no link at the end of the path, and never waits. Errors wrap those
// of [os].
func Read(path string, limit int64) ([]byte, error) {
	regular := func(info fs.FileInfo, err error) error {
		if err == nil && !info.Mode().IsRegular() {
			err = fmt.Errorf("not a regular file but %s", info.Mode().Type())
		}
		return err
	}
	if err := regular(os.Lstat(path)); err != nil { // opening alone has effects on some devices
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if err := regular(file.Stat()); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("larger than %d bytes", limit)
	}
	return data, nil
}
