// Package supply tests what the program is made of: that a build can be repeated byte for
// byte elsewhere, that known vulnerabilities in dependencies are found, and that each
// dependency is accounted for. It must not know what the program does.
package supply
