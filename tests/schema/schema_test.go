package schema

import (
	"os"
	"testing"
)

func TestPublished(t *testing.T) {
	t.Chdir("..")
	want, err := Make(false, ".")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(File); string(got) != string(want) || err != nil {
		t.Errorf("%s is not that of the Go types: run make schema and commit (%v)", File, err)
	}
}
