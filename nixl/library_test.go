package nixl

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// siteWith makes a site-packages folder with files of the given contents.
func siteWith(t *testing.T, files map[string]string) string {
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return root
}

func torch(cuda string) string {
	return "from typing import Optional\n\n__version__ = '2.13.0'\ndebug = False\ncuda: Optional[str] = " + cuda + "\nhip: Optional[str] = None\n"
}

const (
	cu12 = ".nixl_cu12.mesonpy.libs/libnixl_capi.so"
	cu13 = ".nixl_cu13.mesonpy.libs/libnixl_capi.so"
	rocm = ".nixl_rocm.mesonpy.libs/libnixl_capi.so"
)

func TestPlacesFollowTorch(t *testing.T) {
	for name, c := range map[string]struct {
		version string
		want    []string
	}{
		"CUDA 12":  {torch("'12.8'"), []string{cu12, cu13, rocm}},
		"CUDA 13":  {torch(`"13.0"`), []string{cu13, cu12, rocm}},
		"CPU":      {torch("None"), []string{cu13, cu12, rocm}},
		"old form": {"cuda = '12.1'\n", []string{cu12, cu13, rocm}},
		"garbage":  {"\xff\x00cuda", []string{cu13, cu12, rocm}},
	} {
		t.Run(name, func(t *testing.T) {
			root := siteWith(t, map[string]string{cu12: "", cu13: "", rocm: "", "torch/version.py": c.version})
			paths, failures := places(Config{WheelRoot: root})
			require.Empty(t, failures)
			var want []string
			for _, path := range c.want {
				want = append(want, filepath.Join(root, path))
			}
			require.Equal(t, append(want, libraryName), paths)
		})
	}
}

func TestExplicitPathIsTheOnlyPlace(t *testing.T) {
	root := siteWith(t, map[string]string{cu12: ""})
	paths, failures := places(Config{Library: "/a/libnixl_capi.so", WheelRoot: root})
	require.Equal(t, []string{"/a/libnixl_capi.so"}, paths)
	require.Empty(t, failures)
}

func TestFailureListsEveryPlace(t *testing.T) {
	if _, err := load(libraryName); err == nil {
		t.Skip("the dynamic loader finds a NIXL in this process")
	}
	root := siteWith(t, map[string]string{cu12: "not a library", "torch/version.py": torch("'12.8'")})
	_, err := Open(Config{WheelRoot: root})
	require.ErrorIs(t, err, ErrLibrary)
	require.ErrorContains(t, err, filepath.Join(root, cu12)+": file too short")
	require.ErrorContains(t, err, filepath.Join(root, cu13)+": no such file or directory")
	require.ErrorContains(t, err, filepath.Join(root, rocm)+": no such file or directory")
	require.ErrorContains(t, err, "libnixl_capi.so: cannot open shared object file")

	_, err = Open(Config{Library: "/nonexistent/libnixl_capi.so", WheelRoot: root})
	require.ErrorIs(t, err, ErrLibrary)
	require.ErrorContains(t, err, "/nonexistent/libnixl_capi.so: cannot open shared object file")
	require.NotContains(t, err.Error(), root)
}

func TestMissingSymbolIsNamed(t *testing.T) {
	source := filepath.Join(siteWith(t, map[string]string{
		"old.c": "int nixl_capi_create_configured_agent(void) { return 0; }\n",
	}), "old.c")
	path := filepath.Join(filepath.Dir(source), libraryName)
	out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", path, source).CombinedOutput()
	require.NoError(t, err, "%s", out)
	_, err = Open(Config{Library: path})
	require.ErrorIs(t, err, ErrLibrary)
	require.ErrorContains(t, err, "no symbol nixl_capi_destroy_agent")
}
