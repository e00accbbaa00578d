package config

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// Options configures a [Watcher].
type Options struct {
	// Path is the file; empty for none.
	Path string
	// Every is how often the file is looked at, by default 5 s.
	Every time.Duration
	// Reload asks to read the file now: the process got SIGHUP. It may be nil.
	Reload <-chan os.Signal
	Log    *slog.Logger
}

const (
	defaultEvery = 5 * time.Second
	// settle is how long a change must stand: who writes a file in place empties it
	// first, and an empty file is a valid one that would undo all settings.
	settle = time.Second
)

// Watcher keeps the configuration up with its file. Open it, then Run it once.
//
// It polls: inotify watches inodes, while a path may lead elsewhere by any part of it.
// A ConfigMap is changed by moving a symlink in a directory above, editors move a new
// file over the old one, and some file systems tell of nothing. Reading one small
// file is cheap, and unlike its times and size the content cannot deceive.
type Watcher struct {
	opts Options

	mu       sync.Mutex
	loadedAt time.Time
	err      error

	// The rest belongs to Run.
	inForce  [sha256.Size]byte // content of the configuration in force
	judged   look              // what was decided upon last
	pending  look              // what was seen last, if it differs
	reported string            // the error that was logged last
}

// look is what there was to see of the file at one time: content or an error.
type look struct {
	sum [sha256.Size]byte
	err string
}

// Open reads the file for the first time and returns what is in it. There is no former
// configuration to keep: the error of a bad file is the caller's. Without a path
// the configuration is the default one.
func Open(opts Options) (*Watcher, *Config, error) {
	opts.Every = cmp.Or(max(opts.Every, 0), defaultEvery)
	w := &Watcher{opts: opts}
	if opts.Path == "" {
		return w, Default(), nil
	}
	data, seen, err := w.look()
	if err != nil {
		return nil, nil, err
	}
	c, err := parseFile(opts.Path, data)
	if err != nil {
		return nil, nil, err
	}
	w.inForce, w.judged, w.pending = seen.sum, seen, seen
	w.loadedAt = time.Now()
	return w, c, nil
}

// Status returns when the configuration in force was taken over, zero without a file,
// and what is wrong with the file now, nil if nothing is. It may be called concurrently.
func (w *Watcher) Status() (loadedAt time.Time, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.loadedAt, w.err
}

// Run calls apply with every new configuration until ctx ends, and returns nil. It
// reads the file when the content has changed, and on Reload whether it has or not.
// While the file is bad or missing the former configuration stays in force; so it
// must when apply returns an error, and then apply is called again at the next look.
func (w *Watcher) Run(ctx context.Context, apply func(*Config) error) error {
	timer := time.NewTimer(w.opts.Every)
	defer timer.Stop()
	if w.opts.Path == "" {
		timer.Stop()
	}
	reload := w.opts.Reload
	for {
		select {
		case <-ctx.Done():
			return nil
		case _, open := <-reload:
			switch {
			case !open:
				reload = nil
				continue
			case w.opts.Path == "":
				w.opts.Log.Info("there is no configuration file to read again; start the agent with --config FILE to have one")
				continue
			}
			data, seen, err := w.look()
			w.judge(data, seen, err, true, apply)
			timer.Reset(w.opts.Every)
		case <-timer.C:
			timer.Reset(w.poll(apply))
		}
	}
}

// poll looks at the file and returns when to look again.
func (w *Watcher) poll(apply func(*Config) error) time.Duration {
	data, seen, err := w.look()
	switch seen {
	case w.judged:
		w.pending = seen
	case w.pending:
		w.judge(data, seen, err, false, apply)
	default:
		w.pending = seen
		return min(settle, w.opts.Every)
	}
	return w.opts.Every
}

func (w *Watcher) look() ([]byte, look, error) {
	data, err := read(w.opts.Path)
	if err != nil {
		return nil, look{err: err.Error()}, err
	}
	return data, look{sum: sha256.Sum256(data)}, nil
}

// judge takes the file's content over, or says why not. Asked says that somebody waits
// for an answer, so there is one even if nothing is new.
func (w *Watcher) judge(data []byte, seen look, err error, asked bool, apply func(*Config) error) {
	w.pending, w.judged = seen, seen
	var c *Config
	if err == nil {
		c, err = parseFile(w.opts.Path, data)
	}
	if err != nil {
		w.failed(err, asked)
		return
	}
	unchanged := seen.sum == w.inForce
	if !unchanged || asked {
		if err := apply(c); err != nil {
			w.judged = look{} // to be tried again
			w.failed(fmt.Errorf("%s: %w", w.opts.Path, err), asked)
			return
		}
		w.inForce = seen.sum
	}
	w.mu.Lock()
	mended := w.err != nil
	w.err = nil
	if !unchanged || asked {
		w.loadedAt = time.Now()
	}
	w.mu.Unlock()
	w.reported = ""
	w.opts.Log.Info(message(asked, unchanged, mended), "file", w.opts.Path,
		"networks", len(c.networks), "shared", len(c.shared))
}

func message(asked, unchanged, mended bool) string {
	switch {
	case unchanged && asked:
		return "configuration read again, it is unchanged"
	case unchanged:
		return "configuration file is good again, and unchanged"
	case mended:
		return "configuration file is good again, its changes are in force"
	}
	return "configuration changed, its changes are in force"
}

// failed keeps the former configuration and says why, once for each error.
func (w *Watcher) failed(err error, asked bool) {
	w.mu.Lock()
	w.err = err
	w.mu.Unlock()
	if text := err.Error(); asked || text != w.reported {
		w.reported = text
		for _, problem := range each(err) {
			w.opts.Log.Warn("configuration not taken over, the former one stays in force", "error", problem)
		}
	}
}
