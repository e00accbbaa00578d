package cri

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"

	"github.com/dupip/dupip/tests/lab"
)

// Options are the configuration of a runtime.
type Options struct {
	// Network is the name of the CNI network; empty is one of its own. host-local has a
	// store for each name, so runtimes with one dataDir and one name share it.
	Network string
	// Plugins is the CNI chain, the first one with an "ipam" section. Where that is of
	// type host-local and names no dataDir, it gets the one that WipeStore removes.
	Plugins []map[string]any
	// Scripts are further plugins, by type: shell scripts that speak CNI as they like. One with the type
	// of a real plugin takes its place; the real one is in [lab.PluginDir].
	Scripts map[string]string
}

// HostLocal is an ipam section with a range for each subnet.
func HostLocal(subnets ...string) map[string]any {
	var ranges []any
	for _, s := range subnets {
		ranges = append(ranges, []any{map[string]any{"subnet": s}})
	}
	return map[string]any{"type": "host-local", "ranges": ranges}
}

// configTemplate: restrict_oom_score_adj because runc dies without CAP_SYS_RESOURCE; the
// plugins that are off need programs or file systems that a test machine may lack.
const configTemplate = `version = 2
root = %[1]q
state = %[2]q
disabled_plugins = [
  "io.containerd.internal.v1.opt", "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp", "io.containerd.nri.v1.nri",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
]

[grpc]
  address = %[3]q

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %[4]q
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %[5]q
    conf_dir = %[6]q
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      base_runtime_spec = %[8]q
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        Root = %[7]q
`

// loopbackScript takes the place of the loopback plugin, which a runtime calls for every
// netns before any other, and notes what was called for.
const loopbackScript = `#!/bin/sh
[ "$CNI_COMMAND" = ADD ] && echo "$CNI_CONTAINERID $CNI_NETNS" >>%s
exec %s
`

// configure writes everything the runtime reads into its folder.
func (r *Runtime) configure(o Options) error {
	plugins, err := lab.PluginDir()
	if err != nil {
		return err
	}
	bin, conf := filepath.Join(r.dir, "bin"), r.ConfDir()
	for _, dir := range []string{bin, conf, r.logs()} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	entries, err := os.ReadDir(plugins)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if _, ours := o.Scripts[e.Name()]; e.Name() != "loopback" && !ours {
			errs = append(errs, os.Symlink(filepath.Join(plugins, e.Name()), filepath.Join(bin, e.Name())))
		}
	}
	for name, script := range o.Scripts {
		errs = append(errs, os.WriteFile(filepath.Join(bin, filepath.Base(name)), []byte("#!/bin/sh\n"+script), 0o755))
	}
	list, err := json.Marshal(map[string]any{
		"cniVersion": "1.0.0", "name": cmp.Or(o.Network, r.tag), "plugins": r.withStore(o.Plugins),
	})
	if err != nil {
		return fmt.Errorf("write the CNI configuration: %w", err)
	}
	for _, f := range []struct {
		path, data string
		mode       os.FileMode
	}{
		{filepath.Join(bin, "loopback"), fmt.Sprintf(loopbackScript, strconv.Quote(r.notes()), filepath.Join(plugins, "loopback")), 0o755},
		{filepath.Join(conf, "lab.conflist"), string(list), 0o644},
		{filepath.Join(r.dir, "config.toml"), fmt.Sprintf(configTemplate, filepath.Join(r.dir, "root"),
			r.RunDir(), r.Socket, SandboxImage, bin, conf, filepath.Join(r.dir, "runc"), r.baseSpec()), 0o644},
	} {
		errs = append(errs, os.WriteFile(f.path, []byte(f.data), f.mode))
	}
	return errors.Join(append(errs, WriteBaseSpec(r.baseSpec(), r.bootID()))...)
}

// withStore copies the chain and gives host-local its store.
func (r *Runtime) withStore(chain []map[string]any) []map[string]any {
	var all []map[string]any
	for _, plugin := range chain {
		plugin = maps.Clone(plugin)
		if ipam, ok := plugin["ipam"].(map[string]any); ok && ipam["type"] == "host-local" && ipam["dataDir"] == nil {
			ipam = maps.Clone(ipam)
			ipam["dataDir"] = r.Store()
			plugin["ipam"] = ipam
		}
		all = append(all, plugin)
	}
	return all
}

// ConfDir is the folder with the configuration of the network.
func (r *Runtime) ConfDir() string { return filepath.Join(r.dir, "net.d") }
