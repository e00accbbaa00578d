package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Load reads a configuration file, which must be a regular one of at most [MaxSize]
// bytes. Each line of the error begins with the path. See [Parse].
func Load(path string) (*Config, error) {
	data, err := read(path)
	if err != nil {
		return nil, err
	}
	return parseFile(path, data)
}

func parseFile(path string, data []byte) (*Config, error) {
	c, err := Parse(data)
	if err == nil {
		return c, nil
	}
	var errs []error
	for _, problem := range each(err) {
		errs = append(errs, fmt.Errorf("%s: %w", path, problem))
	}
	return nil, errors.Join(errs...)
}

// read returns the content of a file. Nothing that the path may lead to makes it wait.
func read(path string) ([]byte, error) {
	// Looked at first: opening alone has effects on some devices.
	info, err := os.Stat(path)
	if err == nil {
		err = wantRegular(info)
	}
	if err != nil {
		return nil, readError(path, err)
	}
	// It may be another one by now, and opening a FIFO waits for a writer.
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, readError(path, err)
	}
	defer file.Close()
	if info, err = file.Stat(); err == nil {
		err = wantRegular(info)
	}
	if err != nil {
		return nil, readError(path, err)
	}
	data, err := io.ReadAll(io.LimitReader(file, MaxSize+1))
	if err != nil {
		return nil, readError(path, err)
	}
	return data, nil
}

func wantRegular(info fs.FileInfo) error {
	if kind := info.Mode().Type(); kind&fs.ModeDir != 0 {
		return errors.New("is a directory; name the file in it")
	} else if kind != 0 {
		return errors.New("is not a regular file; name one")
	}
	return nil
}

// readError names the path once.
func readError(path string, err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		err = at.Err
	}
	return fmt.Errorf("%s: %w", path, err)
}
