package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"strings"
)

// packageFiles returns the files of the packages for one architecture, by the programs that install them. The packages must have the
// same files, and say what they are.
func (r release) packageFiles(ctx context.Context, arch string) (map[string][]byte, error) {
	deb, rpm := r.path(r.deb(arch)), r.path(r.rpm(arch))
	v := strings.Replace(r.version, "-", "~", 1) // before the version itself
	for _, c := range []struct {
		want string
		args []string
	}{
		{"dupip " + v + " " + arch, []string{"dpkg-deb", "--show", "--showformat=${Package} ${Version} ${Architecture}", deb}},
		{"dupip " + v + " " + rpmArch[arch], []string{"rpm", "-qp", "--nosignature", "--qf=%{NAME} %{VERSION} %{ARCH}", rpm}},
		{rpm + ": digests OK\n", []string{"rpmkeys", "--checksig", "--nosignature", rpm}},
	} {
		out, err := output(ctx, "", c.args...)
		if err == nil && string(out) != c.want {
			err = fmt.Errorf("%v prints %q, want %q", c.args, out, c.want)
		}
		if err != nil {
			return nil, err
		}
	}
	debFiles, err := untarOutput(ctx, deb, "dpkg-deb", "--fsys-tarfile", deb)
	if err != nil {
		return nil, err
	}
	rpmFiles, err := untarOutput(ctx, rpm, "rpm2archive", "-n", "-")
	if err == nil && !maps.EqualFunc(debFiles, rpmFiles, bytes.Equal) {
		err = fmt.Errorf("%s and %s have different files", deb, rpm)
	}
	return debFiles, err
}

// untarOutput returns the files of an archive that a program writes, of which the input is a file.
func untarOutput(ctx context.Context, input string, args ...string) (map[string][]byte, error) {
	archive, err := output(ctx, input, args...)
	if err != nil {
		return nil, err
	}
	return untar(bytes.NewReader(archive))
}
