package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/dupip/dupip/tests/cosign"
)

// sums returns the checksums of the files, as sha256sum writes them.
func (r release) sums() ([]byte, error) {
	var text bytes.Buffer
	names := r.files()
	slices.Sort(names)
	for _, name := range names {
		content, err := r.read(name)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&text, "%x  %s\n", sha256.Sum256(content), name)
	}
	return text.Bytes(), nil
}

// signed are the files that have a signature: they have the checksums of all others.
var signed = []string{sumsFile, provenanceFile}

// sign signs by a private key of cosign, of which COSIGN_PASSWORD has the password. Nothing is sent anywhere.
func (r release) sign(ctx context.Context, key string) error {
	path, err := cosign.Path()
	if err != nil {
		return err
	}
	for _, name := range signed {
		if _, err := output(ctx, "", path, "sign-blob", "--key", key, "--tlog-upload=false", "--yes", "--output-signature", r.path(name+signature), r.path(name)); err != nil {
			return err
		}
		if err := os.Chmod(r.path(name+signature), 0o644); err != nil { // as the other files
			return err
		}
	}
	return nil
}

// verifySignatures verifies by a public key, without a network.
func (r release) verifySignatures(ctx context.Context, key string) error {
	if key == "" {
		return errors.New("PUB=cosign.pub names the public key; take it from a place that you trust, not from the release")
	}
	path, err := cosign.Path()
	if err != nil {
		return err
	}
	for _, name := range signed {
		text, err := r.read(name + signature)
		if err != nil {
			return err
		}
		// One signature has one form.
		if raw, err := base64.StdEncoding.Strict().DecodeString(string(text)); err != nil || base64.StdEncoding.EncodeToString(raw) != string(text) {
			return fmt.Errorf("%s is not a signature", name+signature)
		}
		if _, err := output(ctx, "", path, "verify-blob", "--key", key, "--insecure-ignore-tlog=true", "--signature", r.path(name+signature), r.path(name)); err != nil {
			return err
		}
	}
	return nil
}
