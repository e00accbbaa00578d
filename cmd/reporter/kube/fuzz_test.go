package kube

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

// FuzzList: whatever the API server answers, only a list that is JSON is read to its end, each of its items once, and what a watch tells are
// objects.
func FuzzList(f *testing.F) {
	for _, text := range []string{
		`{"kind":"EventList","metadata":{"resourceVersion":"7","continue":""},"items":[{"metadata":{"name":"a","namespace":"b"},"series":{"count":3}},{"metadata":7}]}`,
		`{"metadata":{"continue":"next"},"items":[{}]}`, `{"items":null}`, `{"items":{}}`, `{"items":[{}`, `[]`, `{"kind":"Status","code":410}`,
		`{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"8"}}}` + "\n" + `{"type":"ERROR","object":{"code":410}}`,
		`{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}`,
	} {
		f.Add([]byte(text))
	}
	var body []byte
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("continue") {
			_, _ = io.WriteString(w, `{"metadata":{"resourceVersion":"8"}}`)
			return
		}
		_, _ = w.Write(body)
	}))
	f.Cleanup(server.Close)
	token := filepath.Join(f.TempDir(), "token")
	if err := os.WriteFile(token, nil, 0o600); err != nil {
		f.Fatal(err)
	}
	c := New(server.URL, token, nil)
	f.Fuzz(func(t *testing.T, text []byte) {
		body = text
		items := 0
		_, err := List(t.Context(), c, "/list", nil, func(e *Listed, _ error) error {
			if items++; e == nil {
				t.Error("an item is nothing")
			}
			return nil
		})
		var whole json.RawMessage
		if valid := json.NewDecoder(bytes.NewReader(text)).Decode(&whole); err == nil && valid != nil {
			t.Errorf("read, and it is no JSON: %v", valid)
		}
		var first struct{ Items []json.RawMessage }
		if err == nil && bytes.Count(bytes.ToLower(text), []byte(`items"`)) == 1 && !bytes.ContainsRune(text, '\\') && json.Unmarshal(whole, &first) == nil && bytes.Contains(text, []byte(`"items"`)) && topLevel(whole) && len(first.Items) != items {
			t.Errorf("%d items, want %d", items, len(first.Items))
		}
		watch, err := c.Watch(t.Context(), "/watch", nil, "7")
		if err != nil {
			return
		}
		_, _ = watch.Each(func(object json.RawMessage, _ bool) error {
			if !json.Valid(object) {
				t.Errorf("an object is %q", object)
			}
			return nil
		})
	})
}

// topLevel reports whether a list has its items at its top level.
func topLevel(list json.RawMessage) bool {
	var fields map[string]json.RawMessage
	return json.Unmarshal(list, &fields) == nil && fields["items"] != nil
}
