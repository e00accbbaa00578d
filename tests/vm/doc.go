// Package vm runs tests under the oldest kernel that dupip is tested on: Debian's Linux
// 6.1, which has no tcx, in a virtual machine that qemu emulates without the help of the
// processor. The kernel comes from apt and is not installed; the machine has an initramfs
// made for the occasion, with busybox and the tests' own binaries, and no disk or network.
//
// It owns the machine and the choice of tests. What is tested it must not know: the tests
// are those of other packages, compiled. `make test-vm` runs it, `make test` does not.
package vm
