//go:build !nixlpush_test

package main

import "github.com/nixlpush/nixlpush/nixl"

func openTransport(c nixl.Config) (nixl.Transport, error) { return nixl.Open(c) }
