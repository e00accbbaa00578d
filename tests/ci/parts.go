package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// lane is what a part needs of the machine while it runs.
type lane string

const (
	// timed parts measure time. They mostly wait.
	timed lane = "timed"
	// spare parts do not, or have deadlines of minutes. They keep the processors busy.
	spare lane = "spare"
	// anyLane is for a worker that takes the parts in their order.
	anyLane lane = ""
)

// workers is how many parts of a lane run at once. When all parts of timed have begun, its workers take spare ones.
type workers map[lane]int

var (
	together = workers{timed: 2, spare: 2}
	// alone is for a release, whose parts are judged by the second, or keep a machine busy.
	alone = workers{anyLane: 1}
)

// niceness is what the lanes leave to each other (nice(1)): two parts that measure time have three quarters of the processors, if they
// want them.
var niceness = map[lane]string{timed: "0", spare: "5"}

// part is one of CI. It runs tests or a script.
type part struct {
	name string
	lane lane
	// budget is in seconds, with a warm cache and with what runs beside it in CI.
	budget int
	why    string
	// urgent: others wait for it, or it has timeouts that no test can lengthen, so it leaves nothing to those that measure time.
	urgent bool
	// after are parts that must have ended.
	after []string
	// install are targets of tests/install.sh.
	install string
	// module is the folder of the tests' module, packages are theirs, and flags those of go test.
	module   string
	packages []string
	flags    []string
	// ordinary: its tests run as an ordinary user.
	ordinary bool
	// timeout is that of go test. A part that takes half an hour more is ended.
	timeout time.Duration
	// env has more variables.
	env []string
	// script is a shell script in the project's folder, instead of tests.
	script string
	// sets are those that it is in, "ci" if there is none.
	sets []string
}

const (
	// patient is for parts that have no processor to themselves: beside two that measure time they get a seventh of the processors, or less.
	patient = "DUPIP_TEST_PATIENCE=10"
	release = "DUPIP_TEST_RELEASE=1"
)

// parts are in the order in which those of a lane begin.
var parts = []part{
	{
		name: "build", lane: spare, budget: 30, script: "go build ./... && go build -C tests ./...", sets: []string{"ci", "release"}, urgent: true,
		why: "compiles once what all others would compile at the same time",
	},

	ofTests("e2e", timed, 480, "real agents with real pods: what users see, hostile pods, restarts", "./e2e").with("-parallel=4"),
	ofTests("scenarios", timed, 300, "all labelled situations: what must and what must not raise an alarm", "./scenarios"),
	ofTests("faults", timed, 320, "eight nodes and a bad network; floods and forged gossip", "./faults").with("-parallel=4"),
	ofTests("alerting", timed, 120, "a real Prometheus and Alertmanager get all metrics, and the alerts arrive", "./alerting"),
	ofTests("soak", timed, 10, "the soaks' plans, the kernel's truth and the judge", "./soak/judge", "./soak/plan", "./soak/truth"),
	ofTests("search", spare, 90, "random lives of small clusters in virtual time, and all that broke a law once", "./search").with("-seeds=600"),
	ofTests("scale", timed, 40, "the network of the clusters in virtual time, and a small cluster", "./scale/..."),

	{
		name: "lint", lane: spare, budget: 120, script: "make lint", install: "lint", sets: []string{"ci", "quick"},
		why: "golangci-lint, clang-format, and that the plugin can be built for any system",
	},
	{
		name: "kubernetes", lane: spare, budget: 15, module: "tests", packages: []string{"./cluster"}, flags: []string{"-run=TestVersion"}, timeout: 70 * time.Minute,
		why: "builds the programs of a Kubernetes cluster", urgent: true, after: []string{"build"}, sets: []string{"ci", "release"},
	},
	ofTests("cluster", spare, 780, "a real Kubernetes cluster: the README's commands, upgrades, duplicates and what people do about them", "./cluster").behind("kubernetes").patiently().hurried(),
	ofTests("vm", spare, 700, "what Linux 5.10 and 6.12 do otherwise, in emulated machines", "./vm").needs("vm").atMost(70 * time.Minute),
	{
		name: "generate", lane: spare, budget: 10, script: unchanged("generate", "bpf"), install: "generate",
		why: "the committed BPF objects are those of the sources", after: []string{"build"},
	},
	{
		name: "manifests", lane: spare, budget: 10, script: unchanged("manifests schema", "deploy"),
		why: "the committed manifests and the schema are those of chart and types", after: []string{"kubernetes"}, // Helm is made of the same
	},
	{
		name: "vulncheck", lane: spare, budget: 30, script: "make vulncheck",
		why: "known vulnerabilities in what the program calls",
	},
	{
		name: "fuzz", lane: spare, budget: 60, script: "tests/fuzz.sh", why: "some fuzz targets, in turn by commit", after: []string{"build"},
	},
	ofProduct("packages", 420, "each package but the detector's and gossip's, with the race detector", "./agent/...", "./bpf/...", "./cmd/...", "./document/...", "./internal/...").raced(),
	ofProduct("detector", 20, "the detector, which has no threads", "./detector/..."),
	// With the race detector, two threads that run timers of one testing/synctest bubble crash Go 1.26 (runtime/time.go,
	// bubble.timers.raceCtx). Many members in one bubble do that every hundredth time.
	ofProduct("gossip", 400, "gossip's packages, with the race detector, by one thread; the part user plays the largest clusters", "./gossip/...").raced().with("-cpu=1"),
	ofTests("deploy", spare, 240, "chart, manifests and alert rules, by real Helm and promtool", "./deploy").behind("kubernetes").patiently(),
	ofTests("lab", spare, 60, "the network that all others are played in", "./lab").patiently(),
	ofTests("incidents", spare, 280, "five public incident reports on a real containerd, runc and CNI plugins", "./incidents").patiently(),
	ofTests("vip", spare, 60, "the real keepalived on three nodes: split, frozen, and fail-overs", "./vip").with("-parallel=4").patiently(),
	ofTests("cri", spare, 30, "the real containerd that others are played on", "./cri/...").patiently(),
	ofTests("kubelet", spare, 80, "the DaemonSet's pod with the rights that the manifest gives it, and without each of them", "./kubelet").patiently(),
	ofTests("image", spare, 80, "the image: its files, its digest, that it runs", "./image/...").patiently(),
	ofTests("ui", spare, 70, "the page in Chromium", "./ui").patiently().needs("ui"),
	ofTests("others", spare, 150, "the files of a release, licences, the parser against gopacket, the schema, the harness",
		"./apt/...", "./bench", "./ci", "./cosign/...", "./demo", "./docker", "./helm/...", "./othertools/...", "./parser/...", "./pods/...", "./release/...", "./schema/...", "./supply/...").behind("kubernetes").patiently(),
	ofProduct("user", 80, "as an ordinary user: no test may need root without saying so", "./...").asUser(),

	ofProduct("plain", 120, "each package, without the race detector", "./...").in("quick"),
	ofTests("few", timed, 60, "a few scenarios: on one node and two, silent and sending, bridged and routed, a move, a restart", "./scenarios").
		with("-run=^TestScenarios$/^(D1|D2|D3|D5|D6|D9|Q1|Q2|Q5|Q7)$").in("quick"),

	ofTests("builds", spare, 600, "two builds are the same, packages, licences, charts, the key", "./supply", "./release", "./deploy").with("-run=TestReproducibleBuild|TestVulncheck|TestRelease|TestChart|TestGossipKey").
		needs("release").having(release).in("release"),
	ofTests("failovers", spare, 60, "twenty fail-overs of keepalived, also with VRRP's MAC", "./vip").with("-run=TestFailOver").having(release).in("release"),
	ofTests("docker", spare, 500, "real Dockers of two versions, and Podman", "./docker").having(release).in("release"),
	{
		name: "containerd", lane: spare, budget: 1000, sets: []string{"release"}, install: "test",
		script: `for suite in trixie sid; do
    packages=$(go run -C tests ./apt/unpack $suite containerd)
    PATH="$packages/usr/bin:$PATH" DUPIP_TEST_PATIENCE=10 go test -C tests -count=1 -v -timeout 30m -p 1 ./cri ./pods ./incidents || exit 1
done`,
		why: "the same with containerd 1.7 and 2.1",
	},
	ofTests("first-hour", spare, 2700, "the first hour with a release, a reporter of 5,000 nodes, and of their books", "./cluster").with("-run=TestFirstHour|TestReporterWithManyNodes|TestReporterWithManyBooks").
		needs("first-hour").having(release).in("release"),
	ofTests("linux-5.10", spare, 900, "all that is for Linux 5.10, in an emulated machine", "./vm").needs("vm").atMost(70 * time.Minute).having("DUPIP_TEST_KERNEL=5.10").in("release"),
	ofTests("linux-6.1", spare, 900, "the same under Linux 6.1", "./vm").needs("vm").atMost(70 * time.Minute).having("DUPIP_TEST_KERNEL=6.1").in("release"),
	ofTests("linux-6.12", spare, 900, "all that is for Linux 6.12", "./vm").needs("vm").atMost(70 * time.Minute).having("DUPIP_TEST_KERNEL=6.12").in("release"),
	ofTests("linux-newest", spare, 900, "the same under the newest kernel that Debian has", "./vm").needs("vm").atMost(70 * time.Minute).having("DUPIP_TEST_KERNEL=newest").in("release"),
	ofTests("search-new", spare, 620, "ten minutes of new seeds", "./search").with("-v", "-run=^TestSearch$", "-duration=10m", "-seed=0").in("release"),
	{
		name: "fuzz-all", lane: spare, budget: 900, script: "make fuzz DURATION=10m", why: "all fuzz targets, ten minutes in total", after: []string{"build"}, sets: []string{"release"},
	},
	ofTests("soaks", spare, 1300, "a random life of pods, and of their books, for ten minutes each", "./soak", "./soak/audit").with("-p=1", "-duration=10m").in("release"),
}

// ofTests is a part with packages of the tests' module, ofProduct one with packages of the product.
func ofTests(name string, l lane, budget int, why string, packages ...string) part {
	return part{name: name, lane: l, budget: budget, why: why, after: []string{"build"}, install: "test", module: "tests", packages: packages}
}

func ofProduct(name string, budget int, why string, packages ...string) part {
	return part{name: name, lane: spare, budget: budget, why: why, after: []string{"build"}, install: "test", module: ".", packages: packages}
}

func (p part) with(flags ...string) part   { p.flags = append(p.flags, flags...); return p }
func (p part) having(env ...string) part   { p.env = append(p.env, env...); return p }
func (p part) behind(names ...string) part { p.after = append(p.after, names...); return p }
func (p part) in(sets ...string) part      { p.sets = sets; return p }
func (p part) needs(targets string) part   { p.install += " " + targets; return p }
func (p part) asUser() part                { p.ordinary = true; return p }
func (p part) atMost(t time.Duration) part { p.timeout = t; return p }
func (p part) hurried() part               { p.urgent = true; return p }
func (p part) patiently() part             { return p.having(patient) }
func (p part) raced() part                 { return p.with("-race").having("CGO_ENABLED=1").needs("race") }

// unchanged is a script that fails if targets of make would change files in a folder. It makes them in a copy, because other parts read
// the folder meanwhile.
func unchanged(targets, folder string) string {
	return fmt.Sprintf(`copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
tar -c --exclude=./.git --exclude=./bin . | tar -x -C "$copy"
make -C "$copy" %s
diff -rq %s "$copy/%[2]s" || { echo "%[2]s has files that are not as they are made from their sources: run make %[1]s" >&2; exit 1; }`, targets, folder)
}

// sets are the names of sets of parts. Each lane of CI is one.
func sets() []string {
	return []string{"ci", "quick", "release", string(timed), string(spare)}
}

// niceness is what the part leaves to others.
func (p part) niceness() string {
	if p.urgent {
		return niceness[timed]
	}
	return niceness[p.lane]
}

func (p part) isIn(set string) bool {
	inCI := p.sets == nil || slices.Contains(p.sets, "ci")
	return set == "ci" && inCI || set == string(p.lane) && inCI || slices.Contains(p.sets, set)
}

// choose returns the parts of a set, or those with these names.
func choose(set, only string) (chosen []part, err error) {
	if only == "" {
		if !slices.Contains(sets(), set) {
			return nil, fmt.Errorf("-set %s: it must be one of %s", set, strings.Join(sets(), ", "))
		}
		for _, p := range parts {
			if p.isIn(set) {
				chosen = append(chosen, p)
			}
		}
		return chosen, nil
	}
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(parts, func(p part) bool { return p.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no part %q: see tests/ci/parts.go", name)
		}
		chosen = append(chosen, parts[i])
	}
	return chosen, nil
}
