package agent

import (
	"strings"
	"testing"
)

func TestThisNode(t *testing.T) {
	first, err := ThisNode("n1")
	if err != nil {
		t.Fatal(err)
	}
	second, err := ThisNode("n1")
	if err != nil {
		t.Fatal(err)
	}
	if first.BootID != second.BootID || len(first.BootID) != 36 || second.Epoch <= first.Epoch || first.ID() != second.ID() {
		t.Errorf("%+v, then %+v: want one boot, one id and a later epoch", first, second)
	}
	if named, err := ThisNode(""); err != nil || named.Name == "" {
		t.Errorf("%+v, %v: want the host name", named, err)
	}
	for _, bad := range []string{"a b", "a/b", "a\nb", "ä", "-n", "a.", "$(a)", "(none)", strings.Repeat("a", 254)} {
		if err := (Options{NodeName: bad}).Check(); err == nil || !strings.HasPrefix(err.Error(), "--node-name ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("name %q: error %v, want one line", bad, err)
		}
	}
}
