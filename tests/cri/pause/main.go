// Command pause is what runs in a pod sandbox: it does nothing until it is told to end.
// Its arguments only tell whose it is.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	<-signals
}
