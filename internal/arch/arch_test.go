// Package arch holds the rules of the repository that a compiler does not check: who may
// import whom, where cgo stands, and what a library in someone else's process must not do.
package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/nixlpush/nixlpush/"

// may says what of this module each package imports. A package that is not listed, or an
// import that is not, fails the test: a new arrow is a decision.
var may = map[string][]string{
	"blocks":                    {},
	"notify":                    {},
	"internal/eventfd":          {},
	"internal/safego":           {},
	"internal/arch":             {},
	"internal/logring":          {"internal/eventfd"},
	"nixl/internal/capi":        {},
	"nixl":                      {"nixl/internal/capi"},
	"nixl/nixltest":             {"nixl"},
	"nixl/nixltest/conformance": {"nixl"},
	"sidechannel":               {"internal/safego", "notify"},
	"connector":                 {"blocks", "internal/eventfd", "internal/safego", "nixl", "notify"},
	"connector/cshared":         {"connector", "internal/logring", "nixl", "sidechannel"},
}

// mayInTests adds what only the tests of a package import.
var mayInTests = map[string][]string{
	"nixl":          {"nixl/nixltest", "nixl/nixltest/conformance"},
	"nixl/nixltest": {"nixl/nixltest/conformance"},
	"connector":     {"nixl/nixltest"},
}

// cgo is where import "C" stands.
var cgo = []string{"nixl/internal/capi", "connector/cshared"}

// inTests are packages that only tests import: the rules for libraries do not bind them.
var inTests = []string{"nixl/nixltest", "nixl/nixltest/conformance"}

// forbidden names what writes to the host's descriptors, or reads Go's snapshot of the
// environment, which the host cannot change after exec.
var forbidden = map[string][]string{
	"os":        {"Getenv", "LookupEnv", "Environ", "ExpandEnv", "Setenv", "Unsetenv", "Stdout", "Stderr", "Exit"},
	"fmt":       {"Print", "Printf", "Println"},
	"log":       nil, // all of it
	"log/slog":  {"Default", "SetDefault", "Debug", "Info", "Warn", "Error", "Log"},
	"os/signal": nil,
}

type source struct {
	dir    string // of the package, from the root
	path   string
	test   bool
	syntax *ast.File
}

// sources parses every Go file of the repository.
func sources(t *testing.T) (all []source, fset *token.FileSet) {
	t.Helper()
	fset = token.NewFileSet()
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != root && (name == "testdata" || strings.HasPrefix(name, ".") || path == filepath.Join(root, "build")) {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(name) != ".go" {
			return nil
		}
		syntax, err := parser.ParseFile(fset, path, nil, 0)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		all = append(all, source{filepath.ToSlash(dir), path, strings.HasSuffix(name, "_test.go"), syntax})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Fatalf("only %d Go files found under %s", len(all), root)
	}
	return all, fset
}

func TestImports(t *testing.T) {
	files, _ := sources(t)
	for _, f := range files {
		allowed, known := may[f.dir]
		if !known {
			t.Errorf("%s: package %s is not in the list of this test: say what it may import", f.path, f.dir)
			continue
		}
		if f.test {
			allowed = append(slices.Clone(allowed), append(mayInTests[f.dir], f.dir)...)
		}
		for _, spec := range f.syntax.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			if path == "C" && !slices.Contains(cgo, f.dir) {
				t.Errorf("%s: import \"C\" stands in %v alone", f.path, cgo)
			}
			if ours, ok := strings.CutPrefix(path, module); ok && !slices.Contains(allowed, ours) {
				t.Errorf("%s: %s must not import %s", f.path, f.dir, ours)
			}
		}
	}
}

func TestGoodGuest(t *testing.T) {
	files, fset := sources(t)
	for _, f := range files {
		if f.test || slices.Contains(inTests, f.dir) {
			continue
		}
		names := importNames(t, f)
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && slices.Contains(forbidden[names[x.Name]], n.Sel.Name) {
					t.Errorf("%s: %s.%s: the library is a guest in its process", fset.Position(n.Pos()), x.Name, n.Sel.Name)
				}
			case *ast.CallExpr:
				if x, ok := n.Fun.(*ast.Ident); ok && (x.Name == "print" || x.Name == "println") {
					t.Errorf("%s: %s writes to stderr", fset.Position(n.Pos()), x.Name)
				}
			case *ast.GoStmt:
				if f.dir != "internal/safego" {
					t.Errorf("%s: start goroutines with safego.Go: a panic in this one ends the host", fset.Position(n.Pos()))
				}
			}
			return true
		})
	}
}

// importNames maps the names of a file's imports to their paths, and refuses those that
// are forbidden as a whole.
func importNames(t *testing.T, f source) map[string]string {
	t.Helper()
	names := map[string]string{}
	for _, spec := range f.syntax.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		if members, ok := forbidden[path]; ok && members == nil {
			t.Errorf("%s: imports %s: the library is a guest in its process", f.path, path)
		}
		name := path[strings.LastIndex(path, "/")+1:]
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = path
	}
	return names
}
