package kube

import (
	"cmp"
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

// List reads the objects of a path page by page, with query parameters that select them, and calls use for each: decoded as T, or as much of
// it as could be, with the error. It returns the version from which [Client.Watch] goes on. Where a page is too long, or does not come in time,
// it asks for half as many objects. It stops at the first other error: that of use, a single object that is too long, or the API server's.
func List[T any](ctx context.Context, c *Client, path string, query url.Values, use func(*T, error) error) (version string, err error) {
	parameters := url.Values{}
	maps.Copy(parameters, query)
	for size := pageSize; ; {
		parameters.Set("limit", strconv.Itoa(size))
		p, err := readPage[T](ctx, c, path+"?"+parameters.Encode())
		late := errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
		if size > 1 && (late || errors.Is(err, errTooLong)) {
			size /= 2
			continue
		}
		if err != nil {
			return "", err
		}
		for i := range p.items {
			if err := use(&p.items[i], p.broken[i]); err != nil {
				return "", err
			}
		}
		if p.Continue == "" {
			return p.ResourceVersion, nil
		}
		parameters.Set("continue", p.Continue)
		size = min(2*size, pageSize)
	}
}

// page is a part of a list.
type page[T any] struct {
	Continue, ResourceVersion string
	items                     []T
	broken                    map[int]error // why items could not be decoded
}

// readPage reads a page as it comes: each object is decoded once, and one that is not as it should be does not spoil the others.
func readPage[T any](ctx context.Context, c *Client, path string) (*page[T], error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answer, err := c.send(ctx, http.MethodGet, path, "", nil)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body := &bounded{from: answer.Body, left: maxBody}
	p, texts := &page[T]{broken: make(map[int]error)}, json.NewDecoder(body)
	err = eachField(texts, func(name string) error {
		switch name {
		case "metadata":
			return texts.Decode(p)
		case "items":
			return eachItem(texts, func() error {
				p.items = append(p.items, *new(T))
				last := len(p.items) - 1
				err := texts.Decode(&p.items[last])
				if _, isSyntax := errors.AsType[*json.SyntaxError](err); isSyntax || body.err != nil || errors.Is(err, io.ErrUnexpectedEOF) {
					return err
				}
				if err != nil {
					p.broken[last] = err
				}
				return nil
			})
		}
		return texts.Decode(new(json.RawMessage))
	})
	if err != nil {
		return nil, fmt.Errorf("reading the API server's answer: %w", cmp.Or(body.err, err))
	}
	return p, nil
}

// eachField calls use for each field of an object, whose value it has to read.
func eachField(texts *json.Decoder, use func(name string) error) error {
	if begin, err := texts.Token(); err != nil || begin != json.Delim('{') {
		return cmp.Or(err, errors.New("it is no list"))
	}
	for texts.More() {
		name, err := texts.Token()
		if err == nil {
			err = use(fmt.Sprint(name))
		}
		if err != nil {
			return err
		}
	}
	_, err := texts.Token()
	return err
}

// eachItem calls use for each element of an array, or of null, which it has to read.
func eachItem(texts *json.Decoder, use func() error) error {
	switch begin, err := texts.Token(); {
	case err != nil || begin == nil:
		return err
	case begin != json.Delim('['):
		return errors.New("its items are no list")
	}
	for texts.More() {
		if err := use(); err != nil {
			return err
		}
	}
	_, err := texts.Token()
	return err
}

// bounded is a reader that ends with an error after so many bytes.
type bounded struct {
	from io.Reader
	left int
	err  error // why nothing more can be read, nil at the end of the text
}

func (b *bounded) Read(to []byte) (n int, err error) {
	if b.left == 0 {
		b.err = errTooLong
		return 0, b.err
	}
	n, err = b.from.Read(to[:min(len(to), b.left)])
	b.left -= n
	if err != nil && !errors.Is(err, io.EOF) {
		b.err = err
	}
	return n, err
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
