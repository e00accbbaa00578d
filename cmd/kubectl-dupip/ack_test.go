package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/document"
)

// TestAck: what is said goes into the one ConfigMap that the chart made for it, with what is over taken out.
func TestAck(t *testing.T) {
	k := newKubectl(t, list(pod("good", "True")))
	for _, maps := range []string{list(), list(`{"metadata": {"name": "a"}}`, `{"metadata": {"name": "b"}}`)} {
		k.write("configmaps", maps)
		if out, err := k.dupip("ack", "10.0.0.1", "--end"); err == nil || !strings.Contains(err.Error(), " ConfigMaps for acknowledgements, and one is needed") {
			t.Errorf("%v, %s", err, out)
		}
	}
	k.write("configmaps", list(`{"metadata": {"name": "dupip-reporter-acks"}, "data": {"10.0.0.9": "{}"}}`))
	if out, err := k.dupip("ack", "10.0.0.1", "--end", "--by", "alice"); err != nil || !strings.Contains(out, "Not acknowledged any more.") {
		t.Fatalf("%v, %s", err, out)
	}
	calls, _ := os.ReadFile(filepath.Join(k.dir, "calls"))
	if !strings.Contains(string(calls), "get configmaps --selector=app.kubernetes.io/part-of=dupip,dupip.io/component=acknowledgements ") {
		t.Errorf("the calls are\n%s", calls)
	}
	_, patch, _ := strings.Cut(string(calls), "patch configmap dupip-reporter-acks --type=merge --patch=")
	patch, _, _ = strings.Cut(patch, " --output=name ")
	var got struct{ Data map[string]*string }
	if err := json.Unmarshal([]byte(patch), &got); err != nil || len(got.Data) != 2 || got.Data["10.0.0.9"] != nil || got.Data["10.0.0.1"] == nil {
		t.Fatalf("%v: the patch is %s", err, patch)
	}
	var ack document.SharedAck
	if err := json.Unmarshal([]byte(*got.Data["10.0.0.1"]), &ack); err != nil || ack.IP.String() != "10.0.0.1" || ack.By != "alice" || ack.Seconds != 0 || time.Since(ack.At) > time.Minute {
		t.Errorf("%v: it says %+v", err, ack)
	}
}
