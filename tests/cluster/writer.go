package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// Writer writes many objects: it keeps its connections. It may be used concurrently.
type Writer struct {
	url    string
	client *http.Client
}

// NewWriter returns one that makes so many requests at a time without new connections.
func (c *Cluster) NewWriter(atOnce int) *Writer {
	c.Helper()
	client, err := c.pki.client(c.control, "admin")
	c.Do(err)
	transport := client.Transport.(*http.Transport)
	transport.DisableKeepAlives, transport.MaxIdleConnsPerHost = false, atOnce
	return &Writer{c.url, client}
}

// Write makes a request at a path of the API, such as api/v1/nodes, and reads the object of the answer into stored, unless that is nil. A body
// of PATCH is a merge patch.
func (w *Writer) Write(ctx context.Context, method, path string, body []byte, stored any) error {
	request, err := http.NewRequestWithContext(ctx, method, w.url+"/"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	response, err := w.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return err
	case response.StatusCode >= 300:
		return fmt.Errorf("%s %s: %s: %.1000s", method, path, response.Status, text)
	case stored != nil:
		return json.Unmarshal(text, stored)
	}
	return nil
}
