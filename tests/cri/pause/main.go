// Command pause runs in a pod sandbox: it does nothing until a signal ends it. Its arguments name its
// owner, except those of the tests of containers:
//
//	pause read FILE...   prints files and then waits
//	pause show FILE...   prints files and ends
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if len(os.Args) > 2 && (os.Args[1] == "read" || os.Args[1] == "show") {
		for _, path := range os.Args[2:] {
			data, err := os.ReadFile(path)
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(3)
			}
			os.Stdout.Write(data)
		}
		if os.Args[1] == "show" {
			return
		}
	}
	<-signals
}
