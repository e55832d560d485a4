package nixl

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/nixlpush/nixlpush/nixl/internal/capi"
)

const libraryName = "libnixl_capi.so"

// ErrLibrary: no place that was tried has a usable NIXL library.
var ErrLibrary = errors.New("no usable " + libraryName)

// Wheels of NIXL by the suffix of their name. NIXL's own Python package takes the
// one that fits the CUDA version of torch, else the first of these.
var wheelVariants = []string{"cu13", "cu12", "rocm"}

// loaded holds what this process has loaded, by path. Nothing is ever unloaded.
var loaded = struct {
	sync.Mutex
	byPath map[string]*capi.Library
}{byPath: map[string]*capi.Library{}}

// openLibrary loads NIXL from the first place that has it. Its error names every
// place and what was wrong there.
func openLibrary(c Config) (*capi.Library, error) {
	places, failures := places(c)
	for _, path := range places {
		library, err := load(path)
		if err == nil {
			return library, nil
		}
		failures = append(failures, fmt.Errorf("%s: %w", path, err))
	}
	return nil, fmt.Errorf("nixl: %w (pip install nixl, 1.5 or newer, or give its path); tried:\n%w",
		ErrLibrary, errors.Join(failures...))
}

// places lists the paths to try, in order, and the errors of those that are out of
// question already.
func places(c Config) (paths []string, failures []error) {
	if c.Library != "" {
		return []string{c.Library}, nil
	}
	if c.WheelRoot != "" {
		for _, variant := range preferredVariants(c.WheelRoot) {
			path := filepath.Join(c.WheelRoot, ".nixl_"+variant+".mesonpy.libs", libraryName)
			if _, err := os.Stat(path); err != nil {
				failures = append(failures, err)
				continue
			}
			paths = append(paths, path)
		}
	}
	return append(paths, libraryName), failures
}

// preferredVariants puts the wheel that fits the installed torch first.
func preferredVariants(root string) []string {
	major := torchCUDA(root)
	if major == "" {
		return wheelVariants
	}
	fitting := "cu" + major
	ordered := []string{fitting}
	for _, variant := range wheelVariants {
		if variant != fitting {
			ordered = append(ordered, variant)
		}
	}
	return ordered
}

// torchCUDA is the CUDA major version that the torch of a site-packages folder was
// built for, from a line such as
//
//	cuda: Optional[str] = '12.8'
//
// of its version.py; "" if there is no torch or it is not a CUDA build.
func torchCUDA(root string) string {
	text, err := os.ReadFile(filepath.Join(root, "torch", "version.py"))
	if err != nil {
		return ""
	}
	for line := range bytes.Lines(text) {
		name, value, found := strings.Cut(string(line), "=")
		if name, _, _ = strings.Cut(name, ":"); !found || strings.TrimSpace(name) != "cuda" {
			continue
		}
		major, _, found := strings.Cut(strings.Trim(strings.TrimSpace(value), `'"`), ".")
		if found {
			return major
		}
	}
	return ""
}

func load(path string) (*capi.Library, error) {
	loaded.Lock()
	defer loaded.Unlock()
	if library := loaded.byPath[path]; library != nil {
		return library, nil
	}
	library, err := capi.Load(path)
	if err != nil {
		return nil, err
	}
	loaded.byPath[path] = library
	return library, nil
}
