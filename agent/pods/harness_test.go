package pods_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/detector"
)

// patience is how long anything that has to happen may take on a busy machine.
const patience = time.Minute

// journal is a log that is written and read at the same time.
type journal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(p)
}

func (j *journal) count(text string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.b.String(), text)
}

// lostRuntime is what the log says of each connection that was lost.
const lostRuntime = "lost the container runtime"

// resolver is a running Resolver.
type resolver struct {
	*pods.Resolver
	t   testing.TB
	log *journal
}

func start(t testing.TB, opts pods.Options) *resolver {
	t.Helper()
	log := new(journal)
	opts.Cache = cmp.Or(opts.Cache, t.TempDir()) // else what is on the machine, if it may be read, decides what is logged
	opts.EngineSocket = cmp.Or(opts.EngineSocket, "none")
	opts.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelInfo}))
	p, err := pods.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("Run returned %v, want nil", err)
			}
		case <-time.After(patience):
			t.Error("Run goes on after its context has ended")
		}
		if t.Failed() {
			t.Logf("status: %+v\nlog:\n%s", p.Status(), log.b.String())
		}
	})
	return &resolver{p, t, log}
}

// eventually polls until ok returns nil.
func (r *resolver) eventually(what string, ok func() error) {
	r.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatal(fmt.Errorf("%s: %w", what, err))
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// named waits until the netns has this name, and returns how long that took.
func (r *resolver) named(cookie uint64, want detector.Pod) time.Duration {
	r.t.Helper()
	began := time.Now()
	r.eventually("name", func() error {
		got, ok := r.Pod(cookie)
		if !ok || got.Pod != want {
			return fmt.Errorf("netns %d is %+v (%v), want %+v", cookie, got.Pod, ok, want)
		}
		return nil
	})
	return time.Since(began)
}

func (r *resolver) connected(want bool) {
	r.t.Helper()
	r.eventually("connection", func() error {
		if status := r.Status(); status.Connected != want {
			return fmt.Errorf("status %+v, want connected %v", status, want)
		}
		return nil
	})
}

func cookie(t testing.TB, path string) uint64 {
	t.Helper()
	c, err := cookieAt(path)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func cookieAt(path string) (cookie uint64, err error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	err = netns.Do(file, func() (err error) {
		cookie, err = netns.Cookie()
		return err
	})
	return cookie, err
}
