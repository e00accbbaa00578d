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

// objectVolume is a folder with the data of a ConfigMap or Secret.
type objectVolume struct {
	objectKey
	dir  string
	mode fs.FileMode
	// items are the keys to project and their file names; none for all.
	items []corev1.KeyToPath
}

// SetConfigMap creates or changes a ConfigMap; pods that have mounted it see the new data.
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

// volume makes a volume's folder and returns its path on the machine.
func (p *pod) volume(v corev1.Volume) (string, error) {
	own := filepath.Join(p.dir, v.Name)
	switch {
	case v.HostPath != nil:
		path, ok := p.kubelet.HostPaths[v.HostPath.Path]
		if !ok {
			return "", fmt.Errorf("the host path %s is unknown: add it to HostPaths", v.HostPath.Path)
		}
		if kind := v.HostPath.Type; kind != nil && *kind == corev1.HostPathDirectoryOrCreate {
			return path, os.MkdirAll(path, 0o755)
		} else if kind != nil && *kind != corev1.HostPathUnset {
			return "", fmt.Errorf("the hostPath type %s is not understood", *kind)
		}
		return path, nil
	case v.ConfigMap != nil:
		m := v.ConfigMap
		return own, p.object(objectVolume{objectKey{configMap, m.Name}, own, mode(m.DefaultMode), m.Items}, m.Optional)
	case v.Secret != nil:
		s := v.Secret
		return own, p.object(objectVolume{objectKey{secret, s.SecretName}, own, mode(s.DefaultMode), s.Items}, s.Optional)
	}
	return "", errors.New("its type is not understood")
}

// mode is that of a volume's files.
func mode(given *int32) fs.FileMode {
	if given == nil {
		return 0o644
	}
	return fs.FileMode(*given)
}

// object makes the folder of a ConfigMap or Secret, and keeps it up to date.
func (p *pod) object(v objectVolume, optional *bool) error {
	data, ok := p.kubelet.objects[v.objectKey]
	if !ok && (optional == nil || !*optional) {
		return fmt.Errorf("there is no %s %s: set it first", v.kind, v.name)
	}
	p.kubelet.volumes = append(p.kubelet.volumes, v)
	return errors.Join(os.Mkdir(v.dir, 0o777), v.project(data))
}

// project writes files as a kubelet does, so that all of them change at once: a new folder with the
// files, ..data as a link to it, and a link for each file. Links of files that are gone stay.
func (v *objectVolume) project(data map[string]string) error {
	files := data
	if len(v.items) > 0 {
		files = make(map[string]string)
		for _, item := range v.items {
			content, ok := data[item.Key]
			if !ok {
				return fmt.Errorf("%s %s has no key %s", v.kind, v.name, item.Key)
			}
			files[item.Path] = content
		}
	}
	next, err := os.MkdirTemp(v.dir, "..")
	if err != nil {
		return err
	}
	errs := []error{os.Chmod(next, 0o755)}
	for name, content := range files {
		path := filepath.Join(next, name)
		errs = append(errs, os.WriteFile(path, []byte(content), v.mode), os.Chmod(path, v.mode))
	}
	link := filepath.Join(v.dir, "..data")
	previous, _ := os.Readlink(link) // there is none at first
	errs = append(errs, os.Symlink(filepath.Base(next), link+"_tmp"), os.Rename(link+"_tmp", link))
	for name := range files {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(v.dir, name)); !errors.Is(err, fs.ErrExist) {
			errs = append(errs, err)
		}
	}
	if previous != "" {
		errs = append(errs, os.RemoveAll(filepath.Join(v.dir, previous)))
	}
	return errors.Join(errs...)
}
