// Package incidents plays public reports of pod IPs that were given out twice. containerd, runc and
// CNI plugins make the pods as a kubelet has them made, the plugins' records get the fault from the
// report, and the nodes' agents must find the duplicates and nothing else.
//
// It owns the five plays, which name their reports. Package scenarios has the pods that the lab
// makes itself.
package incidents

import (
	"os"
	"testing"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// patience is how long anything that has to happen may take on a busy machine.
var patience = lab.Patience(20 * time.Second)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }
