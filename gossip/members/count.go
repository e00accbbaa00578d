package members

// CountKeys reads a file of keys as [Open] does and returns how many it has. The error
// says what is wrong with the file and never quotes it.
func CountKeys(path string) (int, error) {
	list, _, err := readKeys(path)
	return len(list), err
}
