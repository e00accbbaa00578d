// Package cli has the words that programs and pages share: names of holders and nodes, times, and what to do about a
// conflict. It reads documents of the API and prints nothing.
package cli
