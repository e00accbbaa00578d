// Package cli prints documents of the API for people, as tables, stories and lists of steps, and for programs as JSON and YAML. It has the
// times and counts that the pages show, too. What is wrong and what to do about it are the words of the package say.
package cli
