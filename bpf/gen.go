package bpf

// The generated objects are committed, so that building needs no clang. A change of the C sources
// and of the objects belongs in one commit; the record layout is shared with record.go.

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -no-global-types -type interface observer observer.bpf.c -- -O2 -g -Wall -Werror -mcpu=v3
