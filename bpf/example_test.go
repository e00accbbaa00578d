package bpf_test

import (
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"time"

	"github.com/dupip/dupip/bpf"
)

// Prints which addresses are used behind a veth for ten seconds. It needs root.
func Example() {
	if err := bpf.CheckKernel(); err != nil {
		log.Fatal(err)
	}
	veth, err := net.InterfaceByName("veth0")
	if err != nil {
		log.Fatal(err)
	}
	observer, err := bpf.Load(bpf.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := observer.Attach(veth.Index, bpf.AttachOptions{Generation: 1, CreateQdisc: true}); err != nil {
		log.Fatal(err)
	}
	// It detaches, too.
	time.AfterFunc(10*time.Second, func() { _ = observer.Close() })
	for {
		var r bpf.Record
		switch err := observer.Read(&r); {
		case errors.Is(err, os.ErrClosed):
			return
		case err != nil:
			log.Fatal(err)
		}
		fmt.Println(r.IP, net.HardwareAddr(r.MAC[:]), r.Kind)
	}
}
