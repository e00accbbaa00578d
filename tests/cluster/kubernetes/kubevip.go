package main

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// kubeVIP does what kube-vip does with ARP, which is a program and no module that is small: whoever gets the lease has the address, and announces it
// every three seconds. It ends when the lease is lost, or with SIGTERM: then it takes the address away and releases the lease.
func kubeVIP(args []string) error {
	flags := flag.NewFlagSet("kube-vip", flag.ExitOnError)
	kubeconfig, id := flags.String("kubeconfig", "", ""), flags.String("id", "", "")
	address, device := flags.String("address", "", "an IPv4 address"), flags.String("interface", "", "")
	_ = flags.Parse(args)
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ip, err := netip.ParseAddr(*address)
	if err != nil {
		return err
	}
	run := func(what string) {
		if out, err := exec.Command("ip", "addr", what, ip.String()+"/32", "dev", *device).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "ip addr %s: %v: %s", what, err, out)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "plndr-cp-lock"}, Client: clients.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: *id},
		},
		ReleaseOnCancel: true, LeaseDuration: 5 * time.Second, RenewDeadline: 3 * time.Second, RetryPeriod: time.Second, // kube-vip's defaults
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				for run("add"); ctx.Err() == nil; {
					if err := announce(ip, *device); err != nil {
						fmt.Fprintln(os.Stderr, "announce:", err)
					}
					select {
					case <-ctx.Done():
					case <-time.After(3 * time.Second):
					}
				}
			},
			OnStoppedLeading: func() { run("del") },
		},
	})
	return nil
}

// announce sends a gratuitous ARP.
func announce(ip netip.Addr, device string) error {
	link, err := net.InterfaceByName(device)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	to := &unix.SockaddrLinklayer{Protocol: binary.NativeEndian.Uint16([]byte{8, 6}), Ifindex: link.Index, Halen: 6, Addr: [8]byte{255, 255, 255, 255, 255, 255}}
	frame := []byte{0, 1, 8, 0, 6, 4, 0, 1} // a request
	frame = append(append(frame, link.HardwareAddr...), ip.AsSlice()...)
	frame = append(append(frame, 0, 0, 0, 0, 0, 0), ip.AsSlice()...)
	return unix.Sendto(fd, frame, 0, to)
}
