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
