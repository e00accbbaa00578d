package kubelet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
)

// objectKey names a ConfigMap or a Secret of the DaemonSet's namespace.
type objectKey struct{ kind, name string }

const (
	configMap = "ConfigMap"
	secret    = "Secret"
)

// objectVolume is a folder with the data of an object.
type objectVolume struct {
	objectKey
	dir  string
	mode fs.FileMode
	// items are the parts of it that are there, under names of their own; none for all.
	items []corev1.KeyToPath
}

// project writes what there is of the data.
func (v *objectVolume) project(data map[string]string) error {
	if len(v.items) == 0 {
		return project(v.dir, v.mode, data)
	}
	files := make(map[string]string)
	for _, item := range v.items {
		content, ok := data[item.Key]
		if !ok {
			return fmt.Errorf("%s %s has no key %s", v.kind, v.name, item.Key)
		}
		if item.Mode != nil || item.Path != filepath.Base(item.Path) {
			return fmt.Errorf("of %s %s the item %s with a mode or a folder of its own is not understood", v.kind, v.name, item.Key)
		}
		files[item.Path] = content
	}
	return project(v.dir, v.mode, files)
}

// SetConfigMap makes a ConfigMap or changes it; running pods that have mounted it see the
// new data as they do in a cluster.
func (k *Kubelet) SetConfigMap(name string, data map[string]string) error {
	return k.setObject(objectKey{configMap, name}, data)
}

// SetSecret does for a Secret what SetConfigMap does for a ConfigMap.
func (k *Kubelet) SetSecret(name string, data map[string]string) error {
	return k.setObject(objectKey{secret, name}, data)
}

func (k *Kubelet) setObject(key objectKey, data map[string]string) error {
	k.objects[key] = data
	for _, v := range k.volumes {
		if v.objectKey == key {
			if err := v.project(data); err != nil {
				return fmt.Errorf("change %s %s: %w", key.kind, key.name, err)
			}
		}
	}
	return nil
}

// defaultMode is that of files which no manifest gives another one.
const defaultMode fs.FileMode = 0o644

// volume makes what a volume is of and returns its path on the machine.
func (p *pod) volume(v corev1.Volume) (string, error) {
	own := filepath.Join(p.dir, v.Name)
	source := &v.VolumeSource
	var path string
	switch {
	case source.HostPath != nil:
		h := take(&source.HostPath)
		here, err := p.kubelet.hostPath(take(&h.Path))
		if err != nil {
			return "", err
		}
		if err := checkHostPath(here, take(&h.Type)); err != nil {
			return "", err
		}
		path = here
	case source.EmptyDir != nil:
		if err := nothingLeft("an emptyDir", *take(&source.EmptyDir)); err != nil {
			return "", err
		}
		path = own
		if err := os.Mkdir(path, 0o777); err != nil {
			return "", err
		}
		// Whatever our umask.
		if err := os.Chmod(path, 0o777); err != nil {
			return "", err
		}
	case source.ConfigMap != nil:
		m := take(&source.ConfigMap)
		if err := p.object(own, objectKey{configMap, take(&m.Name)}, take(&m.DefaultMode), take(&m.Items), take(&m.Optional)); err != nil {
			return "", err
		}
		if err := nothingLeft("a configMap volume", *m); err != nil {
			return "", err
		}
		path = own
	case source.Secret != nil:
		s := take(&source.Secret)
		if err := p.object(own, objectKey{secret, take(&s.SecretName)}, take(&s.DefaultMode), take(&s.Items), take(&s.Optional)); err != nil {
			return "", err
		}
		if err := nothingLeft("a secret volume", *s); err != nil {
			return "", err
		}
		path = own
	}
	return path, nothingLeft("volume "+v.Name, v.VolumeSource)
}

// object makes the folder of a ConfigMap or Secret, and keeps it up to date.
func (p *pod) object(dir string, key objectKey, mode *int32, items []corev1.KeyToPath, optional *bool) error {
	data, ok := p.kubelet.objects[key]
	if !ok && (optional == nil || !*optional) {
		return fmt.Errorf("there is no %s %s: set it first", key.kind, key.name)
	}
	v := objectVolume{key, dir, defaultMode, items}
	if mode != nil {
		v.mode = fs.FileMode(*mode)
	}
	if err := os.Mkdir(dir, 0o777); err != nil {
		return err
	}
	p.kubelet.volumes = append(p.kubelet.volumes, v)
	return v.project(data)
}

// project writes files as a kubelet does, for a reader to see all of them change at once: a
// new folder with the files, ..data as a link to it, and a link for each of the files.
func project(dir string, mode fs.FileMode, data map[string]string) error {
	next, err := os.MkdirTemp(dir, "..")
	if err != nil {
		return err
	}
	if err := os.Chmod(next, 0o755); err != nil {
		return err
	}
	for name, content := range data {
		path := filepath.Join(next, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			return err
		}
		if err := os.Chmod(path, mode); err != nil {
			return err
		}
	}
	link := filepath.Join(dir, "..data")
	former, err := os.Readlink(link)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(filepath.Base(next), link+"_tmp"); err != nil {
		return err
	}
	if err := os.Rename(link+"_tmp", link); err != nil {
		return err
	}
	for name := range data {
		err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if former == "" {
		return nil
	}
	gone, err := os.ReadDir(filepath.Join(dir, former))
	if err != nil {
		return err
	}
	for _, e := range gone {
		if _, ok := data[e.Name()]; !ok {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return os.RemoveAll(filepath.Join(dir, former))
}

// checkHostPath does what the type of a hostPath volume asks for.
func checkHostPath(path string, kind *corev1.HostPathType) error {
	if kind == nil || *kind == corev1.HostPathUnset {
		return nil
	}
	if *kind == corev1.HostPathDirectoryOrCreate {
		return os.MkdirAll(path, 0o755)
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	want, known := map[corev1.HostPathType]fs.FileMode{
		corev1.HostPathDirectory: fs.ModeDir, corev1.HostPathFile: 0, corev1.HostPathSocket: fs.ModeSocket,
	}[*kind]
	if !known {
		return fmt.Errorf("the hostPath type %s is not understood", *kind)
	}
	if info.Mode().Type() != want {
		return fmt.Errorf("%s is no %s", path, *kind)
	}
	return nil
}
