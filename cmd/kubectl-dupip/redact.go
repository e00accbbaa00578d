package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// word matches what a name may be, in any text.
var word = regexp.MustCompile(`[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?`)

// In the agents' logs, pods are NAMESPACE/NAME, and nodes and who works on a conflict have a key.
var (
	loggedPod  = regexp.MustCompile(`\b(?:pod|holder\d+)="?([a-z0-9.-]+)/([a-z0-9.-]+)`)
	loggedNode = regexp.MustCompile(`\bnode="?([A-Za-z0-9._-]+)`)
	loggedAck  = regexp.MustCompile(`\bby=(?:"([^"]*)"|(\S+))`)
)

// names replaces names by words that tell only what kind they are of.
type names struct {
	of     map[string]string
	counts map[string]int
	kept   []string // are not secret, and words of dupip's own
}

func (n *names) add(kind, name string) {
	if name == "" || n.of[name] != "" || slices.Contains(n.kept, name) {
		return
	}
	n.counts[kind]++
	n.of[name] = fmt.Sprintf("%s-%d", kind, n.counts[kind])
}

// addWords adds each word of a name.
func (n *names) addWords(kind, name string) {
	for _, w := range word.FindAllString(name, -1) {
		n.add(kind, w)
	}
}

func (n *names) replace(text string) string {
	return word.ReplaceAllStringFunc(text, func(w string) string {
		if with := n.of[w]; with != "" {
			return with
		}
		return w
	})
}

// find adds the names in a document of dupip, or in a list of kubectl, and in documents that are texts in these: a ConfigMap has some.
func (n *names) find(v any) {
	switch v := v.(type) {
	case string:
		var document map[string]any
		if strings.HasPrefix(v, "{") && json.Unmarshal([]byte(v), &document) == nil {
			n.find(document)
		}
	case []any:
		for _, e := range v {
			n.find(e)
		}
	case map[string]any:
		text := func(key string) string { s, _ := v[key].(string); return s }
		switch {
		case v["boot"] != nil && v["name"] != nil:
			n.add("node", text("name")) // also of a reporter, whose pod it is
		case v["namespace"] != nil && v["name"] != nil && v["kind"] == nil && v["creationTimestamp"] == nil:
			n.add("namespace", text("namespace"))
			n.add("pod", text("name"))
			n.add("vm", text("vm"))
		}
		if v["seconds"] != nil { // of an acknowledgement
			n.addWords("person", text("by"))
		}
		n.add("node", text("node"))
		n.add("node", text("nodeName"))
		for _, e := range v {
			n.find(e)
		}
	}
}

// replaceIn replaces names in all values of JSON.
func (n *names) replaceIn(v any) any {
	switch v := v.(type) {
	case string:
		return n.replace(v)
	case []any:
		for i, e := range v {
			v[i] = n.replaceIn(e)
		}
	case map[string]any:
		for key, e := range v {
			v[key] = n.replaceIn(e)
		}
	}
	return v
}

// redact replaces the names of nodes, namespaces, pods and people in all files. The namespace of dupip is none of them.
func (d *dump) redact(namespace string) {
	n := &names{of: make(map[string]string), counts: make(map[string]int), kept: []string{namespace, "default", "kube-system", "host", "dupip"}}
	documents := make(map[string]any)
	for _, f := range d.files {
		if path.Ext(f.name) == ".json" {
			var v any
			decoder := json.NewDecoder(bytes.NewReader(f.data))
			decoder.UseNumber()
			if decoder.Decode(&v) == nil {
				documents[f.name] = v
				n.find(v)
			}
			continue
		}
		for _, m := range loggedPod.FindAllSubmatch(f.data, -1) {
			n.add("namespace", string(m[1]))
			n.add("pod", string(m[2]))
		}
		for _, m := range loggedNode.FindAllSubmatch(f.data, -1) {
			n.add("node", string(m[1]))
		}
		for _, m := range loggedAck.FindAllSubmatch(f.data, -1) {
			n.addWords("person", string(m[1])+string(m[2]))
		}
	}
	for i, f := range d.files {
		data := []byte(n.replace(string(f.data)))
		if v, ok := documents[f.name]; ok {
			data, _ = json.MarshalIndent(n.replaceIn(v), "", "  ")
			data = append(data, '\n')
		}
		d.files[i] = dumped{n.replaceFile(f.name), data}
	}
	for i, f := range d.missing {
		d.missing[i] = dumped{n.replaceFile(f.name), []byte(n.replace(string(f.data)))}
	}
}

// replaceFile replaces a name that a file has.
func (n *names) replaceFile(file string) string {
	folder, name := path.Split(file)
	ext := path.Ext(name)
	return folder + n.replace(strings.TrimSuffix(name, ext)) + ext
}
