// Package cli prints documents of the API, and has the words that programs and pages share: names of holders and nodes, times,
// and what to do about a conflict.
package cli
