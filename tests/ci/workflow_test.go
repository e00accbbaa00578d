package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// TestWorkflow: each part of CI has a job on GitHub, and what it waits for is in the same one.
func TestWorkflow(t *testing.T) {
	text, err := os.ReadFile("../../.github/workflows/ci.yml")
	if err != nil {
		t.Fatal(err)
	}
	var workflow struct {
		Jobs map[string]struct {
			Strategy struct {
				Matrix struct {
					Include []struct{ Job, Parts, Image string }
				}
			}
		}
	}
	if err := yaml.Unmarshal(text, &workflow); err != nil {
		t.Fatal(err)
	}
	played := make(map[string]bool)
	for _, job := range workflow.Jobs["parts"].Strategy.Matrix.Include {
		chosen, err := choose("", job.Parts)
		if err != nil {
			t.Errorf("job %s: %v", job.Job, err)
		}
		for i, p := range chosen {
			played[p.name] = true
			if (p.name == "vm" || p.name == "generate") && job.Image != "debian:12" {
				t.Errorf("job %s: %s takes packages of Debian 12, and the image is %q", job.Job, p.name, job.Image)
			}
			for _, before := range p.after {
				// build only saves the others the time to compile.
				if before != "build" && !slices.ContainsFunc(chosen[:i], func(o part) bool { return o.name == before }) {
					t.Errorf("job %s: %s waits for %s, which is not before it", job.Job, p.name, before)
				}
			}
		}
	}
	var missing []string
	for _, p := range parts {
		if p.isIn("ci") && !played[p.name] {
			missing = append(missing, p.name)
		}
	}
	if missing != nil {
		t.Errorf("no job plays %s", strings.Join(missing, ", "))
	}
}
