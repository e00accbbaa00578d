package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/lab"
)

// diagnosis is the document of dupip doctor, by name of the check.
type diagnosis map[string]checked

type checked struct{ Name, Status, Finding, Advice string }

// quiet are flags for what a test is not about, and that depends on the machine.
var quiet = []string{"--metrics-listen", "off", "--cri-socket", "off"}

// doctor examines a node and checks what is true of every report.
func doctor(l *lab.T, in *lab.Netns, change func(*exec.Cmd), args ...string) diagnosis {
	l.Helper()
	var got outcome
	l.Do(in.Exec(func() error {
		got = dupip(l.TB, change, append([]string{"doctor", "-o", "json"}, args...)...)
		return nil
	}))
	var doc struct {
		Checks  []checked
		Summary struct{ OK, Warnings, Failures, Skipped int }
	}
	if err := json.Unmarshal([]byte(got.stdout), &doc); err != nil {
		l.Fatal(fmt.Errorf("no report: %w, stdout %q, stderr %q", err, got.stdout, got.stderr))
	}
	r, counts := make(diagnosis), make(map[string]int)
	for _, c := range doc.Checks {
		r[c.Name] = c
		counts[c.Status]++
		if (c.Status == "warn" || c.Status == "fail") && c.Advice == "" || c.Finding == "" || c.Status == "ok" && c.Advice != "" {
			l.Errorf("a check without a text, or with one too many: %+v", c)
		}
	}
	s := doc.Summary
	if want := map[string]int{"ok": s.OK, "warn": s.Warnings, "fail": s.Failures, "skip": s.Skipped}; len(doc.Checks) != len(r) ||
		slices.ContainsFunc([]string{"ok", "warn", "fail", "skip"}, func(k string) bool { return want[k] != counts[k] }) {
		l.Errorf("summary %+v of %d checks that count as %v", s, len(doc.Checks), counts)
	}
	if wantCode := min(s.Failures, 1); got.code != wantCode || got.stderr != "" {
		l.Errorf("exit %d with %d failures, stderr %q", got.code, s.Failures, got.stderr)
	}
	return r
}

// want checks the status of one check, and substrings of its texts.
func (r diagnosis) want(l *lab.T, name, status string, words ...string) {
	l.Helper()
	c, found := r[name]
	if !found || c.Status != status {
		l.Errorf("%s: got %q (%s), want %s", name, c.Status, c.Finding, status)
	}
	for _, word := range words {
		if !strings.Contains(c.Finding+"\n"+c.Advice, word) {
			l.Errorf("%s: %q is neither in %q nor in %q", name, word, c.Finding, c.Advice)
		}
	}
}

// onlyOK checks that nothing is amiss but what is named.
func (r diagnosis) onlyOK(l *lab.T, but ...string) {
	l.Helper()
	for name, c := range r {
		if c.Status != "ok" && c.Status != "skip" && !slices.Contains(but, name) {
			l.Errorf("%+v", c)
		}
	}
}

// onDisk is a folder that is neither in memory nor for everybody.
func onDisk(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "doctor")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// A node where all is well, with pods of every style, an agent and a runtime. The doctor
// finds nothing, and leaves nothing: the agent beside it does not even notice.
func TestDoctorOnAHealthyNode(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	for i := range byte(4) {
		l.Pod(n, fmt.Sprintf("bridged%d", i), lab.PodOptions{Addrs: []netip.Addr{n.IPv4(5 + i), n.IPv6(5 + i)}})
		l.Pod(n, fmt.Sprintf("routed%d", i), lab.PodOptions{Style: lab.Routed, Addrs: []netip.Addr{n.RoutedIPv4(5 + i)}})
	}
	args := []string{"--state-dir", onDisk(t), "--cri-socket", startContainerd(l), "--metrics-listen", "off"}

	ids, err := netnsIDs(n) // before an agent gives some
	l.Do(err)
	r := doctor(l, n.Netns, nil, append(args, "--api-socket", filepath.Join(t.TempDir(), "none.sock"))...)
	if after, err := netnsIDs(n); !slices.Equal(after, ids) || err != nil {
		t.Errorf("netns ids %v, %v before: %v", after, ids, err)
	}
	r.onlyOK(l, "agent")
	r.want(l, "agent", "warn", "none runs", "dupip agent")
	r.want(l, "api socket", "ok", "can be made")

	for _, mode := range []string{"tcx", "tc"} {
		a := l.Agent(n, "--attach", mode)
		observed := programs{TCX: 1}
		if mode == "tc" {
			observed = programs{TC: 1, Qdisc: "clsact"}
		}
		wantPrograms(l, n, "before the doctor", observed)
		before, log := traces(l, n), a.Log()
		for range 5 {
			r = doctor(l, n.Netns, nil, append(args, "--api-socket", a.Socket, "--attach", mode)...)
		}
		wantPrograms(l, n, "after the doctor", observed)
		if diff := cmp.Diff(before, traces(l, n)); diff != "" {
			t.Errorf("it left something (-before +after):\n%s", diff)
		}
		if after := a.Log(); strings.Contains(strings.TrimPrefix(after, log), "level=WARN") {
			t.Errorf("the agent logged a problem: %s", strings.TrimPrefix(after, log))
		}
		r.onlyOK(l)
		for name, words := range map[string][]string{
			"capabilities": nil,
			"kernel":       {"Linux"},
			"bpf tcx":      {"works"},
			"bpf tc":       {"works"},
			"bpf xdp":      {"works"},
			"bpf " + mode:  {"--attach " + mode + " uses it"},
			"processes":    {"network namespaces"},
			"netns names":  nil,
			"pods":         {"8 pod interfaces", "entered"},
			"agent":        {"ready"},
			"interfaces":   {"8 interfaces observed"},
			"drops":        {"none"},
			"api socket":   {"served"},
			"runtime":      {"containerd"},
			"state dir":    {"writable"},
		} {
			r.want(l, name, "ok", words...)
		}
		l.Do(a.Stop())
	}
}

// traces is what the doctor might leave: devices, qdiscs and programs of the node, names
// of namespaces, pins.
func traces(l *lab.T, n *lab.Node) []string {
	l.Helper()
	var all []string
	found, err := programsOf(l, n)
	l.Do(err)
	for name, p := range found {
		all = append(all, fmt.Sprintf("%s %+v", name, p))
	}
	names, err := os.ReadDir("/run/netns")
	l.Do(err)
	for _, name := range names {
		if strings.HasPrefix(name.Name(), l.Prefix()) {
			all = append(all, name.Name())
		}
	}
	slices.Sort(all)
	return append(all, pinned(l)...)
}

// Every format works, and the usual one fits a terminal and ends with the summary.
func TestDoctorPrints(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	args := append([]string{"doctor", "--api-socket", "/none.sock", "--state-dir", "/proc/none"}, quiet...)
	for _, format := range []string{"table", "wide", "json", "yaml"} {
		var got outcome
		l.Do(n.Exec(func() error {
			got = dupip(t, nil, append(args, "-o", format)...)
			return nil
		}))
		if got.code != 1 || got.stderr != "" || strings.Contains(got.stdout, "\x1b") {
			t.Errorf("%s: %+v", format, got)
		}
		switch format {
		case "table":
			t.Logf("\n%s", got.stdout)
			for line := range strings.Lines(got.stdout) {
				line = strings.TrimSuffix(line, "\n")
				if utf8.RuneCountInString(line) > 80 || line != strings.TrimRight(line, " ") {
					t.Errorf("a line of %d columns: %q", utf8.RuneCountInString(line), line)
				}
			}
			fallthrough
		case "wide":
			lines := strings.Split(strings.TrimSuffix(got.stdout, "\n"), "\n")
			if last := lines[len(lines)-1]; !strings.Contains(last, " ok, ") || !strings.Contains(last, " failures, ") {
				t.Errorf("%s: last line %q", format, last)
			}
			if !strings.Contains(got.stdout, "state dir     fail  ") {
				t.Errorf("%s: the columns are not where they should be:\n%s", format, got.stdout)
			}
		case "yaml":
			var doc map[string]any
			if err := yaml.Unmarshal([]byte(got.stdout), &doc); err != nil || doc["summary"] == nil {
				t.Errorf("%v in %s", err, got.stdout)
			}
		}
	}
	wantOneLine(t, dupip(t, nil, "doctor", "--attach", "afxdp"), "--attach", "tcx")
}

// What is missing of the rights is named, with what does not work without.
func TestDoctorNamesMissingRights(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	l.Pod(n, "pod", lab.PodOptions{Addrs: []netip.Addr{n.IPv4(5)}})
	setpriv, err := exec.LookPath("setpriv")
	l.Do(err)
	for _, tt := range []struct {
		drop   string
		status string
		words  []string
		// tried: the programs can be tried all the same.
		tried bool
	}{
		{"-all", "fail", []string{"CAP_SYS_ADMIN", "CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_NET_BROADCAST"}, false},
		{"-net_admin", "fail", []string{"CAP_NET_ADMIN", "attached"}, false},
		{"-net_raw", "fail", []string{"CAP_NET_RAW", "probed"}, false},
		{"-net_broadcast", "fail", []string{"CAP_NET_BROADCAST", "addresses"}, true},
		{"-sys_admin", "fail", []string{"CAP_SYS_ADMIN", "entered"}, false},
		{"-sys_ptrace", "warn", []string{"CAP_SYS_PTRACE", "/run/netns"}, true},
		{"-bpf,-perfmon", "ok", nil, true}, // CAP_SYS_ADMIN includes them
	} {
		part(t, l, tt.drop, func(l *lab.T) {
			r := doctor(l, n.Netns, func(cmd *exec.Cmd) {
				cmd.Args = append([]string{setpriv, "--bounding-set", tt.drop, "--inh-caps", tt.drop, cmd.Path}, cmd.Args[1:]...)
				cmd.Path = setpriv
			}, quiet...)
			r.want(l, "capabilities", tt.status, tt.words...)
			for _, mode := range []string{"bpf tcx", "bpf tc"} {
				if tt.tried {
					r.want(l, mode, "ok")
				} else {
					r.want(l, mode, "skip", "cannot be tried")
				}
			}
			switch tt.drop {
			case "-sys_admin":
				r.want(l, "pods", "fail", "CAP_SYS_ADMIN")
			case "-net_raw", "-net_broadcast", "-sys_ptrace":
				r.want(l, "pods", "ok")
			}
		})
	}
	part(t, l, "nobody", func(l *lab.T) {
		r := doctor(l, n.Netns, asNobody, quiet...)
		r.want(l, "capabilities", "fail", "user 65534", "run as root")
		r.want(l, "bpf tcx", "skip", "root")
		r.want(l, "pods", "skip", "root")
		r.want(l, "kernel", "skip", "Linux", "needs root", "ring buffer")
		r.onlyOK(l, "capabilities", "agent")
	})
	part(t, l, "nobody beside Docker", func(l *lab.T) {
		const script = "mount -t tmpfs none /run; mkdir -m 755 /run/netns; mkdir -m 700 /run/docker; exec setpriv --reuid 65534 --regid 65534 --clear-groups \"$@\""
		r := doctor(l, n.Netns, shell("unshare --mount", script), quiet...)
		r.want(l, "netns names", "skip", "root", "/run/docker")
		r.want(l, "pods", "skip", "root")
		r.onlyOK(l, "capabilities", "agent")
	})
	part(t, l, "seccomp", func(l *lab.T) {
		var r diagnosis
		done := make(chan error, 1)
		go func() {
			// The filter stays with the thread and its children, so it ends with this goroutine.
			runtime.LockOSThread()
			err := forbid(unix.SYS_BPF)
			if err == nil {
				r = doctor(l, n.Netns, nil, quiet...)
			}
			done <- err
		}()
		l.Do(<-done)
		r.want(l, "security", "ok", "a seccomp filter")
		r.want(l, "capabilities", "ok")
		r.want(l, "bpf tcx", "fail", "seccomp")
		r.want(l, "kernel", "skip", "security", "ring buffer")
	})
	part(t, l, "user namespace", func(l *lab.T) {
		r := doctor(l, n.Netns, wrapped("unshare", "--user", "--map-root-user"), quiet...)
		r.want(l, "capabilities", "fail", "user namespace", "hostUsers: true")
		r.want(l, "bpf tcx", "skip")
	})
}

// forbid makes a system call fail with EPERM in the calling thread and its children.
func forbid(call uint32) error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // seccomp_data.nr
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
}

// wrapped runs the binary by another command.
func wrapped(command ...string) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		path, err := exec.LookPath(command[0])
		if err != nil {
			path = command[0] // its start reports the problem
		}
		cmd.Args = append(append([]string{path}, command[1:]...), append([]string{cmd.Path}, cmd.Args[1:]...)...)
		cmd.Path = path
	}
}
