package doctor

import (
	"context"
	"errors"
	"io/fs"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/kernel"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/bpf"
)

// checkKernel probes for what an agent needs of every kernel. The later checks of bpf load the programs themselves.
func checkKernel(_ context.Context, known *facts) Check {
	var name unix.Utsname
	_ = unix.Uname(&name) // it cannot fail
	_, err := netns.Cookie()
	return judgeKernel(unix.ByteSliceToString(name.Release[:]), known.uid, err, bpf.CheckKernel())
}

// judgeKernel judges by the results of the probes. The release only explains: distributions bring features to older versions.
func judgeKernel(release string, uid int, results ...error) Check {
	var missing, unknown []string
	for _, err := range results {
		switch {
		case err == nil:
		case errors.Is(err, fs.ErrPermission):
			unknown = append(unknown, err.Error())
		default:
			missing = append(missing, err.Error())
		}
	}
	text := "Linux " + release + ", " + runtime.GOARCH
	switch {
	case len(missing) > 0:
		const advice = "boot a kernel that has what is named; distributions bring it to older versions, too"
		return fail(advice, "%s: %s", text, strings.Join(missing, "; "))
	case len(unknown) == 0:
		return ok("%s", text)
	case uid != 0:
		return skip("%s; needs root: %s", text, strings.Join(unknown, "; "))
	}
	return skip("%s; not all can be probed, see \"capabilities\" and \"security\": %s", text, strings.Join(unknown, "; "))
}

// featureChecks are a row for each thing that an agent works without.
func featureChecks() (all []check) {
	for _, f := range kernel.Features {
		all = append(all, check{f.Name, featureCheck(f), rights})
	}
	return all
}

// featureCheck returns a check of something that an agent works without.
func featureCheck(f kernel.Feature) func(context.Context, *facts) Check {
	return func(context.Context, *facts) Check {
		lacks, err := f.Lacks()
		switch {
		case err != nil:
			return skip("not probed: %v", err)
		case lacks:
			return ok("%v", f) // where it is needed, other checks warn or fail: bpf, pods
		}
		return ok("there, as since Linux %s", f.Since)
	}
}
