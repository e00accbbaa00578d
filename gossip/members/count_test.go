package members

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCountKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	key := strings.Repeat("QUFB", 8) // 24 bytes
	if err := os.WriteFile(path, []byte("# two\n"+key+"\n\n"+strings.Repeat("QkJC", 8)+"\n"+key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := CountKeys(path); n != 2 || err != nil {
		t.Errorf("%d keys, %v; want 2", n, err)
	}
	if _, err := CountKeys(path + "x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}
