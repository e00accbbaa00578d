package agent

import (
	"strings"
	"testing"
)

func TestThisNode(t *testing.T) {
	first, err := ThisNode("n1", "v1")
	if err != nil {
		t.Fatal(err)
	}
	second, err := ThisNode("n1", "v1")
	if err != nil {
		t.Fatal(err)
	}
	if first.Boot != second.Boot || len(first.Boot) != 36 || second.Epoch <= first.Epoch || first.NodeID() != second.NodeID() {
		t.Errorf("%+v, then %+v: want one boot, one id and a later epoch", first, second)
	}
	if named, err := ThisNode("", "v1"); err != nil || named.Name == "" {
		t.Errorf("%+v, %v: want the host name", named, err)
	}
	for _, bad := range []string{"a b", "a/b", "a\nb", "ä", "-n", "a.", "$(a)", "(none)", strings.Repeat("a", 254)} {
		if err := (Options{NodeName: bad}).Check(); err == nil || !strings.HasPrefix(err.Error(), "--node-name ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("name %q: error %v, want one line", bad, err)
		}
	}
}
