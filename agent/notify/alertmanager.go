package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	promconfig "github.com/prometheus/common/config"

	"github.com/dupip/dupip/document"
)

const (
	// sendTime bounds a request, as Prometheus's default does. One that fails is repeated after retry.
	sendTime = 10 * time.Second
	retry    = 5 * time.Second
	// maxRequest bounds the alerts of a request, so that it has 1 MiB at most; maxAnswer is what is read of the answer to one that failed,
	// maxFile the size of the client's configuration.
	maxRequest = 64
	maxAnswer  = 512
	maxFile    = 1 << 20
	// maxError bounds what the log and the status say, in bytes.
	maxError = 300
)

// client makes HTTP clients by a file, which is read again when it changes. The files that it names are read at each request, by the
// library. It is safe for concurrent use.
type client struct {
	path    string // empty for the defaults
	mu      sync.Mutex
	content []byte
	http    *http.Client
}

// get returns the present client.
func (c *client) get() (*http.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	config, content := promconfig.DefaultHTTPClientConfig, []byte{}
	if c.path != "" {
		var err error
		if content, err = readFile(c.path); err != nil {
			return nil, fmt.Errorf("--alertmanager-http-config: %w", err)
		}
	}
	if c.http != nil && bytes.Equal(content, c.content) {
		return c.http, nil
	}
	if c.path != "" {
		read, err := promconfig.LoadHTTPConfig(string(content))
		if err != nil {
			line := strings.Join(strings.Fields(err.Error()), " ")
			return nil, fmt.Errorf("--alertmanager-http-config %s: %s", c.path, quoted.ReplaceAllString(line, "…"))
		}
		config = *read
		config.SetDirectory(filepath.Dir(c.path))
	}
	config.FollowRedirects = false // a POST would become a GET, which says nothing
	made, err := promconfig.NewClientFromConfig(config, "alertmanager", promconfig.WithKeepAlivesDisabled(), promconfig.WithUserAgent("dupip"))
	if err != nil {
		return nil, fmt.Errorf("--alertmanager-http-config %s: %w", c.path, err)
	}
	made.Timeout = sendTime
	c.http, c.content = made, content
	return made, nil
}

// quoted is what an error of YAML has of the file: it may be a secret.
var quoted = regexp.MustCompile("`[^`]*`")

// readFile reads a regular file.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path) // opening alone waits for a pipe
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() > maxFile:
		return nil, fmt.Errorf("%s: must be a regular file of at most 1 MiB", path)
	}
	return os.ReadFile(path)
}

// checkURL refuses what is no URL of an Alertmanager.
func checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("--alertmanager %.300q: must be a URL such as http://alertmanager.example:9093, without /api/v2/alerts", text)
	case u.User != nil:
		return errors.New("--alertmanager: every user of the host sees a password in a URL; put it into a file that --alertmanager-http-config names")
	}
	return nil
}

// receiver sends to one Alertmanager. Its methods but run and offer are safe for concurrent use; offer is for one goroutine.
type receiver struct {
	log    *slog.Logger
	client *client
	url    string
	latest chan []posted // what is there now, unless it was sent
	counts
}

func newReceiver(log *slog.Logger, c *client, u string) *receiver {
	r := &receiver{log: log, client: c, url: strings.TrimRight(u, "/"), latest: make(chan []posted, 1)}
	r.of = document.NotificationStatus{Kind: "alertmanager", To: r.url}
	return r
}

// offer has alerts sent in place of those that wait. It does not block.
func (r *receiver) offer(alerts []posted) {
	select {
	case <-r.latest:
	default:
	}
	r.latest <- alerts
}

// run sends until ctx ends.
func (r *receiver) run(ctx context.Context) {
	var alerts []posted
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case alerts = <-r.latest:
		case <-again:
		}
		again = nil
		failed := false
		for part := range slices.Chunk(alerts, maxRequest) {
			err := r.send(ctx, part)
			if ctx.Err() != nil {
				return
			}
			switch before := r.count(len(part), err); {
			case err != nil && before == "":
				r.log.Warn("an Alertmanager does not take alerts; it is tried again", "url", r.url, "error", reason(err))
			case err == nil && before != "":
				r.log.Info("the Alertmanager takes alerts again", "url", r.url)
			}
			failed = failed || err != nil
		}
		if failed {
			again = time.After(retry)
		}
	}
}

// send sends some alerts.
func (r *receiver) send(ctx context.Context, alerts []posted) error {
	body, err := json.Marshal(alerts)
	if err != nil {
		return err
	}
	return request(ctx, r.client, http.MethodPost, r.url+"/api/v2/alerts", body)
}

// request fails unless the answer is a success.
func request(ctx context.Context, c *client, method, url string, body []byte) error {
	by, err := c.get()
	if err != nil {
		return err
	}
	q, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	q.Header.Set("Content-Type", "application/json")
	answer, err := by.Do(q)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode/100 == 2 {
		return nil
	}
	text, _ := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	return fmt.Errorf("%s %s: %s: %s", method, url, answer.Status, text)
}

// CheckAlertmanager asks an Alertmanager whether it answers with these settings.
func CheckAlertmanager(ctx context.Context, url, httpConfig string) error {
	return request(ctx, &client{path: httpConfig}, http.MethodGet, strings.TrimRight(url, "/")+"/api/v2/status", nil)
}

// counts has how often an Alertmanager or the program got what was for it. It is safe for concurrent use.
type counts struct {
	mu sync.Mutex
	of document.NotificationStatus
}

// count counts notifications that were sent, or failed with an error, and returns the error before.
func (c *counts) count(n int, err error) (before string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before = c.of.Error
	if err != nil {
		c.of.Failed += uint64(n)
		c.of.Error = reason(err)
		return before
	}
	c.of.Sent += uint64(n)
	c.of.SentAt, c.of.Error = time.Now().Round(0), ""
	return before
}

func (c *counts) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of.Dropped++
}

func (c *counts) status() document.NotificationStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of
}

// reason makes one short line of an error, in which there may be texts of others.
func reason(err error) string {
	return document.Text(strings.Join(strings.Fields(err.Error()), " "), maxError)
}
