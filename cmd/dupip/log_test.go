package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/dupip/dupip/cmd/internal/query"
)

// TestErrorInTheLog: the error that ends the agent is a line of the log in JSON, and an error of the command otherwise.
func TestErrorInTheLog(t *testing.T) {
	for format, logged := range map[string]bool{"json": true, "JSON": true, "text": false} {
		var out bytes.Buffer
		root := newRoot()
		root.SetErr(&out)
		root.SetArgs([]string{"agent", "--log-format", format, "--cluster", "c"}) // without --join or --bind
		err := root.ExecuteContext(t.Context())
		if code, ok := errors.AsType[query.ExitError](err); ok != logged || logged && code != 1 || err == nil {
			t.Errorf("%s: %v", format, err)
		}
		var line struct{ Level, Msg, Error string }
		if err := json.Unmarshal(out.Bytes(), &line); logged && (err != nil || line.Level != "ERROR" || !strings.Contains(line.Error, "alone without --join")) {
			t.Errorf("%s: %v, log %s", format, err, &out)
		}
		if !logged && out.Len() > 0 {
			t.Errorf("%s: log %s", format, &out)
		}
	}
}
