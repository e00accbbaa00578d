package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// checkSocket: could an agent open its socket?
func checkSocket(_ context.Context, known *facts) finding {
	path := known.opts.APISocket
	if known.status != nil {
		return ok("%s, served by the agent", path)
	}
	if room := len(unix.RawSockaddrUnix{}.Path) - 1; len(path) > room {
		return fail("choose a shorter --api-socket", "the path has %d bytes, %d are possible", len(path), room)
	}
	switch info, err := os.Lstat(path); {
	case err == nil && info.Mode().Type() != fs.ModeSocket:
		return fail("move it away, or choose another --api-socket", "%s is in the way and is no socket", path)
	case err == nil && !refused(known.statusErr):
		return skip("%s is in use, see \"agent\"", path)
	}
	_, err := writable(filepath.Dir(path))
	switch {
	case err != nil && known.uid != 0:
		return skip("%s needs root", filepath.Dir(path))
	case err != nil:
		return fail("choose another --api-socket, or mount a writable folder there", "%v", err)
	}
	if _, err := os.Lstat(path); err == nil {
		return ok("%s, left by an agent that was killed; the next one replaces it", path)
	}
	return ok("%s can be made", path)
}

// checkMetrics: is the port free, or the agent's own?
func checkMetrics(ctx context.Context, known *facts) finding {
	address := known.opts.MetricsListen
	if address == "off" || address == "none" {
		return skip("--metrics-listen %s", address)
	}
	resolved, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return fail("give --metrics-listen as host:port or :port", "%v", err)
	}
	err = bindable(resolved)
	switch {
	case err == nil && known.status != nil:
		return warn("compare with the agent's own --metrics-listen; without metrics no alert is sent",
			"the agent runs, but nobody listens at %s", address)
	case err == nil:
		return ok("%s is free", address)
	case errors.Is(err, unix.EADDRINUSE) && servesMetrics(ctx, resolved):
		return ok("%s, served by the agent", address)
	case errors.Is(err, unix.EADDRINUSE):
		return fail(fmt.Sprintf("choose another --metrics-listen, or stop what listens there: ss -lntp 'sport = :%d'", resolved.Port),
			"%s is in use by something else", address)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return fail("choose another --metrics-listen, for example :9951", "%s is no address of this node", address)
	case errors.Is(err, unix.EACCES):
		return fail("ports below 1024 need CAP_NET_BIND_SERVICE: choose another --metrics-listen", "%s is not allowed", address)
	}
	return fail("choose another --metrics-listen", "%s: %v", address, err)
}

// bindable returns why a listener could not have the address. It binds and does not
// listen: with SO_REUSEADDR, which Go's listeners set, too, such a socket is in nobody's way.
func bindable(address *net.TCPAddr) error {
	families := []int{unix.AF_INET6, unix.AF_INET}
	if len(address.IP) > 0 && address.IP.To4() != nil {
		families = families[1:]
	}
	var err error
	for _, family := range families {
		// Go, too, takes IPv4 where there is no IPv6.
		if err = bind(family, address); !errors.Is(err, unix.EAFNOSUPPORT) {
			return err
		}
	}
	return err
}

func bind(family int, address *net.TCPAddr) error {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return err
	}
	if family == unix.AF_INET {
		to := unix.SockaddrInet4{Port: address.Port}
		copy(to.Addr[:], address.IP.To4())
		return unix.Bind(fd, &to)
	}
	both := 0
	if len(address.IP) > 0 && !address.IP.IsUnspecified() {
		both = 1
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, both); err != nil {
		return err
	}
	to := unix.SockaddrInet6{Port: address.Port}
	copy(to.Addr[:], address.IP.To16())
	return unix.Bind(fd, &to)
}

// servesMetrics says whether a dupip agent answers at the address.
func servesMetrics(ctx context.Context, address *net.TCPAddr) bool {
	const wait, most = 2 * time.Second, 4 << 20
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	host := address.IP.String()
	if len(address.IP) == 0 || address.IP.IsUnspecified() {
		host = "localhost"
	}
	url := fmt.Sprintf("http://%s/metrics", net.JoinHostPort(host, fmt.Sprint(address.Port)))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	// A proxy from the environment is none of this node's business.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(response.Body, most))
	return bytes.Contains(body, []byte("dupip_build_info"))
}
