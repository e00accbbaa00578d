package metrics

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// busyNode has 250 interfaces, all of which were refused packets, and 100 open conflicts.
// The sources cost nothing here.
func busyNode() Sources {
	sources := rich()
	stats := richLoop()
	stats.States, stats.Observed, stats.Open = map[string]int{"attached": 250}, refusing(250), manyConflicts(100)
	sources.Loop = answering(stats)
	return sources
}

// BenchmarkPage makes the page of a busy node.
func BenchmarkPage(b *testing.B) {
	m := New(busyNode())
	var size int
	b.ReportAllocs()
	for b.Loop() {
		size = request(b.Context(), m.Handler(fine, fine), "/metrics", "application/openmetrics-text; version=1.0.0").Body.Len()
	}
	b.ReportMetric(float64(size), "B/page")
}

// serveMark makes a copy of the test binary a server, so that its CPU time is its own.
const serveMark = "DUPIP_TEST_SERVE_METRICS"

func TestMain(m *testing.M) {
	if os.Getenv(serveMark) == "" {
		os.Exit(m.Run())
	}
	listener, err := Listen("127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr())
	panic(Serve(context.Background(), listener, New(busyNode()).Handler(fine, fine), slog.New(slog.DiscardHandler)))
}

// BenchmarkScrapers measures the CPU that 100 clients cost, which scrape once a second or
// without a pause. An iteration takes a second: -benchtime 5x.
func BenchmarkScrapers(b *testing.B) {
	for _, pause := range []time.Duration{time.Second, 0} {
		b.Run(fmt.Sprintf("pause=%s", pause), func(b *testing.B) {
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), serveMark+"=1")
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
			out, err := cmd.StdoutPipe()
			if err != nil {
				b.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				b.Fatal(err)
			}
			address, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				b.Fatal(err)
			}
			url := "http://" + strings.TrimSpace(address) + "/metrics"
			var pages atomic.Int64
			var ended atomic.Bool
			var group sync.WaitGroup
			for range 100 {
				group.Go(func() {
					client := http.Client{Transport: new(http.Transport)}
					for !ended.Load() {
						response, err := client.Get(url)
						if err != nil {
							b.Error(err)
							return
						}
						_, _ = io.Copy(io.Discard, response.Body)
						response.Body.Close()
						pages.Add(1)
						time.Sleep(pause)
					}
				})
			}
			start := time.Now()
			for b.Loop() {
				time.Sleep(time.Second)
			}
			took := time.Since(start)
			ended.Store(true)
			group.Wait()
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
			b.ReportMetric(cpu.Seconds()/took.Seconds(), "cores")
			b.ReportMetric(float64(pages.Load())/took.Seconds(), "pages/s")
		})
	}
}
