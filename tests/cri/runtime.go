package cri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/dupip/dupip/tests/lab"
)

// startTimeout is how long containerd may take on a busy machine.
const startTimeout = 30 * time.Second

var runtimes atomic.Uint32

func init() { lab.OnSweep(removeLeftovers) }

// Runtime is a containerd in the netns of a node. Start, Stop and Kill9 belong to one
// goroutine; pods may be run from several.
type Runtime struct {
	// Node is where it runs, and Socket its CRI.
	Node   *lab.Node
	Socket string

	dir, tag string
	conn     *grpc.ClientConn
	client   runtimeapi.RuntimeServiceClient
	images   runtimeapi.ImageServiceClient
	imported bool
	// bootMu guards the link to the boot id, because pods are made concurrently.
	bootMu sync.Mutex

	process *lab.Process
}

// New prepares a runtime on the node, which runs after Start. The lab ends it and removes everything
// that it has made.
func New(l *lab.Lab, n *lab.Node, o Options) (*Runtime, error) {
	for _, program := range []string{"containerd", "ctr", "runc", "containerd-shim-runc-v2"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("find the runtime's programs: %w; tests/install.sh test installs them", err)
		}
	}
	dir, err := Folder(l)
	if err != nil {
		return nil, err
	}
	r := &Runtime{Node: n, tag: filepath.Base(dir), dir: dir}
	r.Socket = filepath.Join(r.RunDir(), "containerd.sock")
	l.OnClose(r.close)
	if err := shared(r.RunDir()); err != nil {
		return nil, fmt.Errorf("set a runtime up: %w", err)
	}
	if err := r.configure(o); err != nil {
		return nil, fmt.Errorf("set a runtime up: %w", err)
	}
	return r, r.dial()
}

// dial makes the clients.
func (r *Runtime) dial() (err error) {
	if r.conn, err = Dial(r.Socket); err != nil {
		return err
	}
	r.client, r.images = runtimeapi.NewRuntimeServiceClient(r.conn), runtimeapi.NewImageServiceClient(r.conn)
	return nil
}

// Dial makes a connection that waits for a runtime instead of failing without it.
func Dial(socket string) (*grpc.ClientConn, error) {
	conn, err := grpc.NewClient("unix:"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			ctx, cancel := context.WithTimeout(ctx, callTimeout)
			defer cancel()
			return call(ctx, method, request, reply, conn, opts...)
		}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.2, MaxDelay: 50 * time.Millisecond},
			MinConnectTimeout: time.Second,
		}))
	if err != nil {
		return nil, fmt.Errorf("make a CRI client: %w", err)
	}
	return conn, nil
}

// Client speaks CRI with the runtime.
func (r *Runtime) Client() runtimeapi.RuntimeServiceClient { return r.client }

// Start starts the runtime and waits until it can run pods.
func (r *Runtime) Start(ctx context.Context) error {
	if err := r.launch(); err != nil {
		return fmt.Errorf("start containerd: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	// A runtime that ended will not become ready.
	go func() {
		_ = r.process.Wait(ctx)
		cancel()
	}()
	if err := r.waitReady(ctx); err != nil {
		return fmt.Errorf("start containerd: %w\n%s", err, r.Log())
	}
	if r.imported {
		return nil
	}
	if err := r.importPause(ctx); err != nil {
		return fmt.Errorf("import the sandbox image: %w\n%s", err, r.Log())
	}
	r.imported = true
	return nil
}

func (r *Runtime) launch() error {
	log, err := os.OpenFile(filepath.Join(r.dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command("containerd", "--config", filepath.Join(r.dir, "config.toml"))
	cmd.Stdout, cmd.Stderr = log, log
	r.process, err = r.Node.Launch(cmd)
	return err
}

// waitReady polls until runtime and network are ready.
func (r *Runtime) waitReady(ctx context.Context) error {
	return lab.Poll(ctx, startTimeout, func() error {
		status, err := r.client.Status(ctx, &runtimeapi.StatusRequest{})
		if err != nil {
			return err
		}
		for _, condition := range status.GetStatus().GetConditions() {
			if !condition.Status {
				return fmt.Errorf("%s: %s", condition.Reason, condition.Message)
			}
		}
		return nil
	})
}

// Stop ends the runtime with SIGTERM and waits; its pods go on.
func (r *Runtime) Stop() error { return r.process.Stop() }

// Kill9 ends the runtime with SIGKILL and waits; its pods go on.
func (r *Runtime) Kill9() error { return r.process.Kill() }

// Signal sends the runtime a signal: SIGSTOP stops its threads, and it does not answer until SIGCONT.
func (r *Runtime) Signal(s unix.Signal) error { return r.process.Signal(s) }

// Restart stops the runtime and starts it again.
func (r *Runtime) Restart(ctx context.Context) error {
	if err := r.Stop(); err != nil {
		return err
	}
	return r.Start(ctx)
}

// Running returns whether the runtime runs.
func (r *Runtime) Running() bool { return r.process != nil && r.process.Running() }

// Log is the end of what the runtime has written.
func (r *Runtime) Log() string {
	data, err := os.ReadFile(filepath.Join(r.dir, "log"))
	if err != nil {
		return err.Error()
	}
	const most = 20_000
	return strings.ToValidUTF8(string(data[max(0, len(data)-most):]), "?")
}

// Dir is the runtime's own folder, for files of its node that are removed with it.
func (r *Runtime) Dir() string { return r.dir }

// RunDir is what /run/containerd is on a real node: the socket and the mounts of running containers.
// It is a shared mount.
func (r *Runtime) RunDir() string { return filepath.Join(r.dir, "run") }

// WipeStore removes the store of host-local, as a restored or cleaned node has lost it.
func (r *Runtime) WipeStore() error { return os.RemoveAll(r.Store()) }

// Store is the folder of host-local, unless the options name another one: it has a folder for each network.
func (r *Runtime) Store() string { return filepath.Join(r.dir, "host-local") }

func (r *Runtime) logs() string  { return filepath.Join(r.dir, "logs") }
func (r *Runtime) notes() string { return filepath.Join(r.dir, notesFile) }

func (r *Runtime) close() error {
	if r.conn != nil {
		_ = r.conn.Close()
	}
	return nil
}

// Forget makes the runtime lose all that it knows, as on a node whose /var/lib/containerd was replaced. Of this pod, which KillPod has
// killed, only the netns is left, with interfaces and addresses.
func (r *Runtime) Forget(ctx context.Context, p *Pod) error {
	if err := r.Stop(); err != nil {
		return err
	}
	shims, err := processes(func(arg string) bool { return arg == p.ID })
	for _, pid := range shims {
		err = errors.Join(err, unix.Kill(pid, unix.SIGKILL))
	}
	if err != nil {
		return p.failed("end the shim", err)
	}
	if err := os.RemoveAll(filepath.Join(r.dir, "root")); err != nil {
		return err
	}
	r.imported = false
	return r.Start(ctx)
}
