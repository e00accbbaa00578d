package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// Shell runs a script of an administrator, who has kubectl, and returns what it prints to its standard output. An error has what
// it prints to the other one. It may be called concurrently.
func (c *Cluster) Shell(script string) (string, error) {
	cmd := exec.Command("bash", "-euc", script)
	return c.run(cmd)
}

func (c *Cluster) run(cmd *exec.Cmd) (string, error) {
	// Packages of tests are two folders below the root of the repository, where users are.
	cmd.Dir = "../.."
	cmd.Env = c.environ()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := c.control.Exec(cmd.Run); err != nil {
		return stdout.String(), fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// environ is the environment of an administrator, whose caches and settings are the cluster's own. PATIENCE is how long kubectl
// is to wait for something.
func (c *Cluster) environ() []string {
	environ := append(os.Environ(), "KUBECONFIG="+c.pki.path("admin", "conf"), "PATH="+filepath.Join(c.dir, "bin")+":"+os.Getenv("PATH"),
		"PATIENCE="+lab.Patience(time.Minute).String(), "SSL_CERT_DIR="+c.trusted())
	for _, name := range []string{"HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME", "KUBECACHEDIR"} {
		environ = append(environ, name+"="+filepath.Join(c.dir, name))
	}
	return environ
}

// AddCommand makes a program one of the administrator's.
func (c *Cluster) AddCommand(name, path string) {
	c.Helper()
	c.Do(os.Symlink(path, filepath.Join(c.dir, "bin", name)))
}

// Kubectl runs kubectl and returns what it prints.
func (c *Cluster) Kubectl(args ...string) string {
	c.Helper()
	out, err := c.run(exec.Command(filepath.Join(c.dir, "bin", "kubectl"), args...))
	c.Do(err)
	return out
}

// Apply creates or changes objects.
func (c *Cluster) Apply(yaml string) {
	c.Helper()
	cmd := exec.Command(filepath.Join(c.dir, "bin", "kubectl"), "apply", "-f", "-")
	cmd.Stdin = strings.NewReader(yaml)
	_, err := c.run(cmd)
	c.Do(err)
}

// Get reads an object, or a list of them, from a path of the API, such as api/v1/namespaces/shop/pods/web. It asks the API server
// itself: a process for each question would take most of the time that a test has to wait.
func (c *Cluster) Get(object any, path string) error {
	request, err := http.NewRequestWithContext(c.Context(), http.MethodGet, c.url+"/"+path, nil)
	if err != nil {
		return err
	}
	response, err := c.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1000)) // less will do
		return fmt.Errorf("get %s: %s: %s", path, response.Status, text)
	}
	return json.NewDecoder(response.Body).Decode(object)
}
