package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	"github.com/dupip/dupip/tests/compile"
)

// times are those of a build.
type times struct {
	StartedOn  time.Time `json:"startedOn"`
	FinishedOn time.Time `json:"finishedOn"`
}

// provenance says how the files that have checksums were made: an in-toto statement (in-toto.io/Statement/v1) with SLSA's
// provenance (slsa.dev/provenance/v1). All but the times follows from the files.
func (r release) provenance(programs []program, built times) ([]byte, error) {
	type object = map[string]any
	sums, err := r.read(sumsFile)
	if err != nil {
		return nil, err
	}
	const page = "https://" + compile.Module + "/blob/main/deploy/RELEASE.md"
	var subjects []object
	for line := range strings.Lines(string(sums)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		subjects = append(subjects, object{"name": name, "digest": object{"sha256": sum}})
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetIndent("", "  ")
	err = e.Encode(object{
		"_type":         "https://in-toto.io/Statement/v1",
		"subject":       subjects,
		"predicateType": "https://slsa.dev/provenance/v1",
		"predicate": object{
			"buildDefinition": object{
				"buildType":          page,
				"externalParameters": object{"command": "make release VERSION=" + r.version},
				"internalParameters": object{"go": programs[0].info.GoVersion},
				"resolvedDependencies": []object{{
					"uri":    "git+https://" + compile.Module + "@refs/tags/v" + r.version,
					"digest": object{"gitCommit": programs[0].setting("vcs.revision")},
				}},
			},
			"runDetails": object{"builder": object{"id": page}, "metadata": built},
		},
	})
	return text.Bytes(), err
}
