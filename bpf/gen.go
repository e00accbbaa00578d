package bpf

// The generated objects are committed, so that a build needs no clang. Commit changes of the C sources
// together with the objects; record.go and frame.go have the layout of what the rings carry, too.

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -type interface -type capture -type inside_device observer observer.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3
