package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"
)

// janitorVariable makes a test process a janitor.
const janitorVariable = "DUPIP_TEST_JANITOR"

// startJanitor starts a process that waits until this one ends, and then removes what it leaves if it was killed. The function that
// it returns waits for the janitor at an ordinary end.
func startJanitor() (end func()) {
	if os.Geteuid() != 0 {
		return func() {}
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", janitorVariable, os.Getpid()))
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true} // what ends the tests' process group does not end it
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "start a janitor:", err)
		return func() {}
	}
	return func() {
		_, _ = pipe.Write([]byte("done"))
		_ = pipe.Close()
		_ = cmd.Wait()
	}
}

// janitor is the main function of that process. It returns its exit code.
func janitor() int {
	text, _ := io.ReadAll(os.Stdin)
	if len(text) > 0 {
		return 0
	}
	// Its parent has to take note of its end first.
	err := Poll(context.Background(), time.Minute, func() error {
		if _, err := os.Stat("/proc/" + os.Getenv(janitorVariable)); !errors.Is(err, fs.ErrNotExist) {
			return errors.New("the tests' process is there")
		}
		return nil
	})
	if err := errors.Join(err, removeLeftovers(false), sweepOthers()); err != nil {
		fmt.Fprintln(os.Stderr, "clean up after tests that were killed:", err)
		return 1
	}
	return 0
}
