package doctor

import (
	"context"
	"strings"

	"github.com/dupip/dupip/agent/notify"
	"github.com/dupip/dupip/document/say"
)

// checkAlertmanagers asks each Alertmanager, so that alerts reach somebody.
func checkAlertmanagers(ctx context.Context, known *facts) Check {
	opts := known.opts.Notify
	if len(opts.Alertmanagers) == 0 {
		return skip("no --alertmanager")
	}
	var failed []string
	for _, url := range opts.Alertmanagers {
		if err := notify.CheckAlertmanager(ctx, url, opts.HTTPConfig); err != nil {
			failed = append(failed, err.Error())
		}
	}
	if len(failed) > 0 {
		return warn("correct --alertmanager, or the files for --alertmanager-http-config; an agent does not start if that file is not valid", "%s", strings.Join(failed, "; "))
	}
	return ok("%s", say.Plural(len(opts.Alertmanagers), "Alertmanager answers", "Alertmanagers answer"))
}

// checkProgram checks the program of --on-conflict, which is not run.
func checkProgram(_ context.Context, known *facts) Check {
	opts := known.opts.Notify
	if opts.Program == "" {
		return skip("no --on-conflict")
	}
	if _, err := notify.CheckProgram(opts.Program, opts.User); err != nil {
		return known.failOrSkip("correct the program, or the flag; an agent does not start with it", err)
	}
	if s := known.status; s != nil {
		for _, n := range s.Notifications {
			if n.To == opts.Program && n.Error != "" {
				return warn("look into the agent's log, which has what it said", "the last run of %s failed: %s", n.To, n.Error)
			}
		}
	}
	return ok("%s", opts.Program)
}
