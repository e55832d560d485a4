package notify

import (
	"bytes"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/tinylib/msgp/msgp"
)

func described() []CacheRegion {
	return []CacheRegion{
		{Name: "layers.0", Base: math.MaxUint64, Stride: 4096, NumBlocks: math.MaxUint32, PerID: 2, Group: -1, Tokens: 16, Window: 128, Parts: []CachePart{
			{Component: "k", Offset: 1, Size: 2, Rows: 128, RowStride: 64, Layers: CacheAxis{3, 2, 70000}, Heads: CacheAxis{4, 4, 4096}, HeadsOf: 8, TokenStride: 512},
			{Component: "v", Offset: 256, Size: 256, Layers: CacheAxis{3, 2, 70000}, Heads: CacheAxis{4, 4, 4096}, HeadsOf: 8, TokenStride: 512}}},
		{Name: "layers.1", NumBlocks: 1, Parts: []CachePart{}},
	}
}

func TestDescription(t *testing.T) {
	want := stockMetadata()
	want.Extension = &Extension{Version: 1, Features: []string{}, Factors: map[string]string{}, Cache: described()}
	whole := want.Encode()
	got, err := DecodeAgentMetadata(whole)
	if err != nil || !reflect.DeepEqual(*got, want) {
		t.Errorf("decoded %+v, %v", got.Extension, err)
	}
	for n := range whole {
		if _, err := DecodeAgentMetadata(whole[:n]); err == nil {
			t.Errorf("the first %d of %d bytes decode", n, len(whole))
		}
	}
}

// A later version may say more of a region and of a part.
func TestDescriptionOfTheFuture(t *testing.T) {
	want := described()[:1]
	want[0].Parts = want[0].Parts[:1]
	b := appendDescription(nil, want)
	b[1] = 0x90 | regionFields + 2
	at := bytes.Index(b, []byte("\x91\x9d\xa1k")) + 1
	b[at] = 0x90 | partFields + 1
	b = append(b, 0x91, 0x01, 0xc0, 0xa1, 'x') // of the part, then of the region
	r := reader{b: b}
	got := r.description()
	r.end()
	if r.err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, r.err)
	}
}

func TestDescriptionMalformed(t *testing.T) {
	part := appendPart(nil, &described()[0].Parts[0])
	region := func(group []byte, parts ...byte) []byte {
		b := append([]byte{0x91, 0x99, 0xa0, 1, 1, 1, 1}, group...)
		return append(append(b, 1, 1), parts...)
	}
	for name, c := range map[string]struct {
		b    []byte
		want string
	}{
		"no array":            {[]byte{0x80}, "want array"},
		"short region":        {[]byte{0x91, 0x98, 0, 0, 0, 0, 0, 0, 0, 0}, "want at least 9"},
		"short part":          {region([]byte{0}, append([]byte{0x91, 0x9c}, part[1:]...)...), "want at least 13"},
		"negative base":       {[]byte{0x91, 0x99, 0xa0, 0xff, 0, 0, 0, 0, 0, 0, 0}, "int"},
		"group too far":       {region(msgp.AppendInt64(nil, 1<<40), 0x90), "not within"},
		"many regions":        {msgp.AppendArrayHeader(nil, math.MaxUint32), "too early"},
		"many parts":          {region([]byte{0}, msgp.AppendArrayHeader(nil, math.MaxUint32)...), "too early"},
		"a name of no string": {append([]byte{0x91, 0x99, 0xc0}, region([]byte{0}, 0x90)[3:]...), "want str"},
	} {
		r := reader{b: c.b}
		if r.description(); r.err == nil || !strings.Contains(r.err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, r.err, c.want)
		}
	}
}

// TestDescriptionBounded has regions with many parts each: a few megabytes must not become many.
func TestDescriptionBounded(t *testing.T) {
	p := described()[0].Parts[0]
	many := make([]CachePart, MaxParts/4)
	for i := range many {
		many[i] = p
	}
	b := appendDescription(nil, []CacheRegion{{Parts: many}, {Parts: many}, {Parts: many}, {Parts: many}, {Parts: many}})
	r := reader{b: b}
	if r.description(); r.err == nil || !strings.Contains(r.err.Error(), "limit is") {
		t.Errorf("%d parts: %v", 5*len(many), r.err)
	}
}
