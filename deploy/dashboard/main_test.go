package main

import (
	"bytes"
	"os"
	"testing"
)

// The file is what the program writes.
func TestFile(t *testing.T) {
	want, err := document()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("deploy/dashboard.json is out of date: run go generate ./deploy/dashboard")
	}
}
