package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dupip/dupip/cmd/internal/query"
	"github.com/dupip/dupip/detector"
)

const variablePrefix = "DUPIP_"

// variable is the environment variable of a flag.
func variable(flag string) string {
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// hasVariable reports whether a flag of a command is a setting. Those of the agent are, which the doctor has, too. A question is
// none: a DUPIP_POD of the Downward API must not narrow "dupip conflicts", and DUPIP_CLUSTER is the cluster's name.
func hasVariable(command string, flag *pflag.Flag) bool {
	return flag.Name != "help" && (command == "agent" || command == "doctor" || flag.Name == "api-socket" || flag.Name == "output")
}

// fromEnvironment sets every setting of a command that was not given from DUPIP_<NAME>, unless that is empty.
func fromEnvironment(cmd *cobra.Command) error {
	var err error
	flags := cmd.Flags()
	flags.VisitAll(func(flag *pflag.Flag) {
		if !hasVariable(cmd.Name(), flag) || flag.Changed || err != nil {
			return
		}
		name := variable(flag.Name)
		// Kubernetes sets DUPIP_GOSSIP_PORT for a Service "dupip-gossip".
		if value := os.Getenv(name); value != "" && !foreignVariables.MatchString(name+"="+value) {
			if setErr := flags.Set(flag.Name, value); setErr != nil {
				err = fmt.Errorf("environment variable %s: %w", name, query.FlagError(setErr))
			}
		}
	})
	return err
}

// foreignVariables are no settings: those of this project's tests, and those that Kubernetes sets in pods for each
// Service whose name begins with "dupip" (kubernetes.io/docs/concepts/containers/container-environment). The last
// alternative needs the value to be told from a setting.
var foreignVariables = regexp.MustCompile(`^DUPIP_(TEST_|(\w+_)?SERVICE_(HOST|PORT)(_|=)|(\w+_)?PORT_\d+_(TCP|UDP|SCTP)(_|=)|(\w+_)?PORT=(tcp|udp|sctp)://)`)

// maxUnknown limits the warnings.
const maxUnknown = 5

// warnUnknown warns of variables that begin with DUPIP_ and are no command's. It prints no values: one may be a secret.
func warnUnknown(w io.Writer, root *cobra.Command, environment []string) {
	known := make(map[string]bool)
	addVariables(known, root)
	var unknown []string
	for _, pair := range environment {
		name, _, _ := strings.Cut(pair, "=")
		if strings.HasPrefix(name, variablePrefix) && !known[name] && !foreignVariables.MatchString(pair) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	for _, name := range unknown[:min(len(unknown), maxUnknown)] {
		fmt.Fprintf(w, "dupip: warning: the environment variable %s is ignored: no setting has that name; the nearest is %s\n",
			detector.Printable(fmt.Sprintf("%.64s", name)), nearest(name, slices.Sorted(maps.Keys(known))))
	}
	if n := len(unknown) - maxUnknown; n > 0 {
		fmt.Fprintf(w, "dupip: warning: %d more environment variables that begin with %s are ignored\n", n, variablePrefix)
	}
}

// addVariables adds the variables of a command and of those below it.
func addVariables(known map[string]bool, cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if hasVariable(cmd.Name(), flag) {
			known[variable(flag.Name)] = true
		}
	})
	for _, below := range cmd.Commands() {
		addVariables(known, below)
	}
}

// nearest returns the first of some words that takes the fewest changes of one letter (Levenshtein's distance).
func nearest(word string, words []string) string {
	word = word[:min(len(word), 64)]
	return slices.MinFunc(words, func(a, b string) int { return distance(word, a) - distance(word, b) })
}

func distance(a, b string) int {
	row := make([]int, len(b)+1) // of each beginning of b to the letters of a until now
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal, row[j+1] = row[j+1], min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
