package cluster_test

import (
	"os"
	"testing"

	"github.com/dupip/dupip/tests/lab"
)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }
