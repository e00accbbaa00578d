// Command unpack prints a folder with the files of today's packages of one of Debian's suites:
//
//	PATH=$(go run ./apt/unpack sid containerd)/usr/bin:$PATH
package main

import (
	"fmt"
	"os"

	"github.com/dupip/dupip/tests/apt"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: unpack SUITE PACKAGE...")
		os.Exit(2)
	}
	dir, err := apt.Unpacked(os.Args[1], os.Args[2:]...)
	if err != nil {
		fmt.Fprintln(os.Stderr, "unpack:", err)
		os.Exit(1)
	}
	fmt.Println(dir)
}
