package lab

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Checkout copies the sources in the folder root, as they are now, into another one, and commits them there: equal
// sources are the same commit. The commit has the tags.
func Checkout(ctx context.Context, root, dir string, tags ...string) error {
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		at, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		switch {
		case at == ".git" && !entry.IsDir(): // of a worktree
			return nil
		case at == ".git", at == "bin":
			return fs.SkipDir
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(dir, at), 0o755)
		case entry.Type() == fs.ModeSymlink:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(to, filepath.Join(dir, at))
		case !entry.Type().IsRegular():
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, at), data, info.Mode().Perm())
	})
	if err != nil {
		return err
	}
	const when = "2026-01-01T00:00:00Z"
	commands := [][]string{
		{"init", "-q"},
		{"add", "--all"},
		{"-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false", "commit", "-q", "-m", "as it is"},
	}
	for _, tag := range tags {
		commands = append(commands, []string{"tag", tag})
	}
	for _, args := range commands {
		cmd := exec.CommandContext(ctx, "git", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_AUTHOR_DATE="+when, "GIT_COMMITTER_DATE="+when, "GIT_CONFIG_GLOBAL=/dev/null")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("git %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	return nil
}
