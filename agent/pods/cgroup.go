package pods

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

// maxCgroup is how much of a process's list of cgroups is read, in bytes. A path has at most 4,096.
const maxCgroup = 64 << 10

// container is what the cgroup of a process says of the container that it runs in, the zero value for none.
type container struct {
	engine   string // empty if the cgroup does not say it
	id, name string // what the engine has of the two
}

// unit is the engine of what is a unit of systemd and no container.
const unit = "systemd"

const hexID = `(?P<id>[0-9a-f]{64})`

// cgroups are the names that engines give the cgroups of containers, with the one above.
var cgroups = []struct {
	engine string
	name   *regexp.Regexp
}{
	{"docker", regexp.MustCompile(`/docker-` + hexID + `\.scope$|^docker/` + hexID + `$`)},
	{"podman", regexp.MustCompile(`/libpod-(payload-)?` + hexID + `(\.scope)?$`)}, // payload: in the cgroup of a service, as Quadlet has it
	{"nerdctl", regexp.MustCompile(`/nerdctl-` + hexID + `\.scope$`)},
	{"nomad", regexp.MustCompile(`/(?P<id>[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})\.(?P<name>.+?)(\.scope)?$`)},
	{"lxc", regexp.MustCompile(`/lxc\.payload\.(?P<name>.+)$|^lxc(\.payload)?/(?P<name>.+)$`)}, // also LXD's and Incus's
	{"", regexp.MustCompile(`/machine-(qemu|lxc)\\x2d.+\.scope$`)},                             // libvirt's machines
	{"nspawn", regexp.MustCompile(`/machine-(?P<name>.+)\.scope$|/systemd-nspawn@(?P<name>.+)\.service$`)},
	{"", regexp.MustCompile(`/` + hexID + `$`)}, // below a parent that somebody chose
}

// ofPods matches the cgroups of pods, which the container runtime names, also where the ones above are not seen.
var ofPods = regexp.MustCompile(`kubepods|^(cri-containerd|crio)-|^pod[0-9a-f-]{32,36}$`)

// ofUsers matches the cgroups of users other than root, who give those below their names.
var ofUsers = regexp.MustCompile(`^(user-|user@)[1-9]`)

// containerOf returns the container that a path of cgroup(7) belongs to, or that it belongs to a pod. The outermost one counts: below it
// the container itself gives the names. A container that sees its own cgroups only has ".." in place of what is above.
func containerOf(path string) (c container, isPod bool) {
	above, rootless := "", ""
	parts := slices.DeleteFunc(strings.Split(path, "/"), func(part string) bool { return part == "" || part == ".." })
	for _, part := range parts {
		if ofPods.MatchString(part) {
			return container{}, true
		}
		if ofUsers.MatchString(part) {
			rootless = "rootless "
		}
		for _, e := range cgroups {
			match := e.name.FindStringSubmatch(above + "/" + part)
			if match == nil {
				continue
			}
			if c.engine = e.engine; c.engine != "" {
				c.engine = rootless + c.engine
			} else if rootless != "" {
				return container{}, false // another engine may list the id
			}
			for group, name := range e.name.SubexpNames() {
				switch {
				case name == "id" && match[group] != "":
					c.id = match[group]
				case name == "name" && match[group] != "":
					c.name = unescape(match[group])
				}
			}
			return c, false
		}
		above = part
	}
	if strings.HasSuffix(above, ".service") && parts[0] == "system.slice" {
		return container{engine: unit, name: unescape(above)}, false
	}
	return container{}, false
}

var escaped = regexp.MustCompile(`\\x([0-9a-f]{2})`)

// unescape undoes what systemd makes of characters that are special in the names of units (systemd-escape(1)).
func unescape(name string) string {
	return escaped.ReplaceAllStringFunc(name, func(s string) string {
		var b byte
		_, _ = fmt.Sscanf(s, `\x%02x`, &b)
		return string(rune(b))
	})
}

// UnitOf returns the service of systemd that a process belongs to, empty for none.
func UnitOf(pid int) string {
	if c := containerAt(pid); c.engine == unit && validName(c.name) {
		return c.name
	}
	return ""
}

// containerAt returns the container of a process: by version 2, or by any hierarchy of version 1.
func containerAt(pid int) (c container) {
	file, err := os.Open(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return c
	}
	defer file.Close()
	data, _ := io.ReadAll(io.LimitReader(file, maxCgroup))
	for line := range bytes.Lines(data) {
		fields := strings.SplitN(strings.TrimSuffix(string(line), "\n"), ":", 3)
		if len(fields) < 3 {
			continue
		}
		found, isPod := containerOf(fields[2])
		if isPod {
			return container{}
		}
		if c.engine+c.id == "" || c.engine == unit && found != (container{}) {
			c = found
		}
	}
	return c
}
