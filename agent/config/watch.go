package config

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Load reads a configuration file, which must be a regular one of at most [MaxSize] bytes. It never
// waits. Each line of the error has the path. See [Parse].
func Load(path string) (*Config, error) {
	regular := func(info os.FileInfo, err error) error {
		if err == nil && !info.Mode().IsRegular() {
			err = fmt.Errorf("%s: is not a regular file; name one", path)
		}
		return err
	}
	if err := regular(os.Stat(path)); err != nil { // opening alone has effects on some devices
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // it may be a FIFO by now
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if err := regular(file.Stat()); err != nil {
		return nil, err
	}
	return Read(file, path)
}

// Read reads a configuration file from r, of at most [MaxSize] bytes. Each line of the error has the name.
func Read(r io.Reader, name string) (*Config, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxSize+1))
	if err != nil {
		return nil, err
	}
	c, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %s", name, strings.ReplaceAll(err.Error(), "\n", "\n"+name+": "))
	}
	return c, nil
}

// Options configures a [Watcher].
type Options struct {
	Path   string           // empty for no file
	Every  time.Duration    // interval of polls, by default 5 s
	Reload <-chan os.Signal // requests to read the file now; may be nil
	Log    *slog.Logger
}

// settleTime is how long a file must be unchanged. A program that writes a file in place empties it
// first, and an empty file is valid: it would reset all settings.
const settleTime = time.Second

// Watcher reloads the configuration when its file changes. [Open] it, then Run it once. It polls:
// inotify watches inodes, but a ConfigMap changes by a symlink in a directory above.
type Watcher struct {
	opts Options

	mu       sync.Mutex
	loadedAt time.Time
	err      error

	// These belong to Run: the last result of a poll, the last one handled, the configuration applied.
	seen, handled result
	active        *Config
}

type result struct {
	config *Config
	err    error
}

// Open loads the file and returns its configuration, or the default one without a path.
func Open(opts Options) (*Watcher, *Config, error) {
	opts.Every = cmp.Or(max(opts.Every, 0), 5*time.Second)
	if opts.Path == "" {
		return &Watcher{opts: opts}, new(Config), nil
	}
	c, err := Load(opts.Path)
	if err != nil {
		return nil, nil, err
	}
	return &Watcher{opts: opts, loadedAt: time.Now(), seen: result{config: c}, handled: result{config: c}, active: c}, c, nil
}

// Status returns when the active configuration was loaded, zero without a file, and what is wrong with
// the file now. Safe for concurrent use.
func (w *Watcher) Status() (loadedAt time.Time, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.loadedAt, w.err
}

// Run calls apply for every new configuration and every Reload until ctx ends, and returns nil. If apply
// fails, the previous configuration must stay active; Run tries again.
func (w *Watcher) Run(ctx context.Context, apply func(*Config) error) error {
	reload, wait := w.opts.Reload, w.opts.Every
	for {
		requested := false
		select {
		case <-ctx.Done():
			return nil
		case _, requested = <-reload:
			if !requested {
				reload = nil
				continue
			}
		case <-time.After(wait):
		}
		if w.opts.Path != "" {
			wait = w.poll(requested, apply)
		} else if requested {
			w.opts.Log.Info("no configuration file to reload; start the agent with --config FILE")
		}
	}
}

// poll loads the file and returns the pause until the next poll. It applies a configuration that is new
// or was requested, or logs why it cannot.
func (w *Watcher) poll(requested bool, apply func(*Config) error) time.Duration {
	c, err := Load(w.opts.Path)
	now, last := result{c, err}, w.seen
	w.seen = now
	if !requested && reflect.DeepEqual(now, w.handled) {
		return w.opts.Every
	} else if !requested && !reflect.DeepEqual(now, last) {
		return min(settleTime, w.opts.Every)
	}
	w.handled = now
	changed := requested || !reflect.DeepEqual(c, w.active)
	if err == nil && changed {
		if err = apply(c); err != nil {
			err = fmt.Errorf("%s: %w", w.opts.Path, err)
			w.handled = result{} // so that the next poll tries again
		}
	}
	w.mu.Lock()
	reported := err != nil && w.err != nil && w.err.Error() == err.Error()
	w.err = err
	if err == nil && changed {
		w.active, w.loadedAt = c, time.Now()
	}
	w.mu.Unlock()
	if err == nil {
		w.opts.Log.Info("configuration loaded", "file", w.opts.Path, "networks", len(c.networks), "shared", len(c.shared))
	} else if requested || !reported {
		for problem := range strings.SplitSeq(err.Error(), "\n") {
			w.opts.Log.Warn("configuration rejected; the previous one stays active", "error", problem)
		}
	}
	return w.opts.Every
}
