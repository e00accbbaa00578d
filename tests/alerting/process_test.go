package alerting

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"

	"github.com/dupip/dupip/tests/lab"
)

// startProcess starts the first of the programs that is installed. The lab ends it.
func startProcess(n *lab.Node, programs []string, args ...string) (*lab.Process, error) {
	var missing error
	for _, name := range programs {
		path, err := exec.LookPath(name)
		if err == nil {
			return n.Launch(exec.Command(path, args...))
		}
		missing = err
	}
	return nil, fmt.Errorf("%w; tests/install.sh test installs it", missing)
}

// getJSON decodes the response of a URL; with nil it only checks for success.
func getJSON(ctx context.Context, client *http.Client, url string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("get %s: %s", url, response.Status)
	}
	if into == nil {
		return nil
	}
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		return fmt.Errorf("decode %s: %w", url, err)
	}
	return nil
}
