package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

const (
	// pageSize is how many objects one request lists, at most.
	pageSize = 500
	// watchTime is how long one watch lasts, as client-go has it: the API server ends it then.
	watchTime = 5 * time.Minute
)

// List reads the objects of a path page by page, with query parameters that select them, and calls use for each: an object is decoded as T,
// once. It returns the version from which [Client.Watch] goes on. Where a page is too long, or does not come in time, it asks for half as many
// objects. It stops at the first error: that of use, a single object that is too long, or the API server's.
func List[T any](ctx context.Context, c *Client, path string, query url.Values, use func(*T) error) (version string, err error) {
	parameters := url.Values{}
	maps.Copy(parameters, query)
	for size := pageSize; ; {
		parameters.Set("limit", strconv.Itoa(size))
		var page struct {
			Metadata struct{ Continue, ResourceVersion string }
			Items    []T
		}
		err := c.do(ctx, http.MethodGet, path+"?"+parameters.Encode(), "", nil, &page)
		late := errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
		if size > 1 && (late || errors.Is(err, errTooLong)) {
			size /= 2
			continue
		}
		if err != nil {
			return "", err
		}
		for i := range page.Items {
			if err := use(&page.Items[i]); err != nil {
				return "", err
			}
		}
		if page.Metadata.Continue == "" {
			return page.Metadata.ResourceVersion, nil
		}
		parameters.Set("continue", page.Metadata.Continue)
		size = min(2*size, pageSize)
	}
}

// Get reads one object.
func (c *Client) Get(ctx context.Context, path string) (object json.RawMessage, err error) {
	err = c.do(ctx, http.MethodGet, path, "", nil, &object)
	return object, err
}

// Watch is the changes of the objects of a path.
type Watch struct {
	answer  *http.Response
	end     context.CancelFunc
	version string
}

// Watch begins to watch the objects of a path from a version on. Call [Watch.Each] then. [Is] an error 410, of either, the list has to be read
// again.
func (c *Client) Watch(ctx context.Context, path string, query url.Values, version string) (*Watch, error) {
	parameters := url.Values{"watch": {"1"}, "allowWatchBookmarks": {"true"}, "timeoutSeconds": {strconv.Itoa(int(watchTime.Seconds()))}, "resourceVersion": {version}}
	maps.Copy(parameters, query)
	ctx, cancel := context.WithTimeout(ctx, watchTime+timeout)
	answer, err := c.send(ctx, http.MethodGet, path+"?"+parameters.Encode(), "", nil)
	if err != nil {
		cancel()
		return nil, err
	}
	return &Watch{answer, cancel, version}, nil
}

// Each calls use for each change until the API server ends the watch, which is no error, or the context of the watch ends, or use fails. It
// returns the version from which another watch goes on.
func (w *Watch) Each(use func(object json.RawMessage, deleted bool) error) (version string, err error) {
	defer w.end()
	defer w.answer.Body.Close()
	body := &io.LimitedReader{R: w.answer.Body}
	for events := json.NewDecoder(body); ; {
		var event struct {
			Type   string
			Object json.RawMessage
		}
		body.N = maxBody
		switch err := events.Decode(&event); {
		case errors.Is(err, io.EOF) && body.N > 0:
			return w.version, nil
		case err != nil:
			return w.version, fmt.Errorf("reading a watch of the API server: %w", err)
		}
		var object struct {
			Metadata struct{ ResourceVersion string }
			Code     int
			Message  string
		}
		if err := json.Unmarshal(event.Object, &object); err != nil {
			return w.version, fmt.Errorf("reading a watch of the API server: %w", err)
		}
		switch event.Type {
		case "ADDED", "MODIFIED", "DELETED":
			if err := use(event.Object, event.Type == "DELETED"); err != nil {
				return w.version, err
			}
		case "ERROR":
			return w.version, &StatusError{object.Code, fmt.Sprintf("%.500q", object.Message)}
		}
		w.version = object.Metadata.ResourceVersion
	}
}
