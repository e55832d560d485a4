package notify

import (
	"maps"
	"math"
	"slices"

	"github.com/tinylib/msgp/msgp"
)

// All that nixlpush adds to vLLM's messages sits in one map under this key.
const (
	extensionKey     = "nixlpush"
	extensionVersion = 1
)

// Extension is what a nixlpush engine tells about itself in its [AgentMetadata].
type Extension struct {
	Version  int               // of the extension; [AgentMetadata.Encode] writes 1 for 0
	Features []string          // used only if both sides name them
	Factors  map[string]string // what the compatibility hash was made from
	Cache    []CacheRegion     // what is in the blocks; nil: the engine does not say
}

// Has reports whether the engine names the feature. A nil Extension (a stock engine)
// names none.
func (e *Extension) Has(feature string) bool {
	return e != nil && slices.Contains(e.Features, feature)
}

func appendExtension(b []byte, e *Extension) []byte {
	keys := uint32(3)
	if e.Cache != nil {
		keys++
	}
	b = msgp.AppendMapHeader(msgp.AppendString(b, extensionKey), keys)
	version := e.Version
	if version == 0 {
		version = extensionVersion
	}
	b = appendNumber(b, "v", version)
	b = appendNames(msgp.AppendString(b, "features"), e.Features)
	b = msgp.AppendMapHeader(msgp.AppendString(b, "factors"), uint32(len(e.Factors)))
	for _, key := range slices.Sorted(maps.Keys(e.Factors)) {
		b = appendString(b, key, e.Factors[key])
	}
	if e.Cache != nil {
		b = appendDescription(msgp.AppendString(b, "cache"), e.Cache)
	}
	return b
}

func (r *reader) extension() *Extension {
	e := &Extension{Version: extensionVersion}
	for n := r.object(math.MaxInt32); n > 0 && r.err == nil; n-- {
		switch string(r.key()) {
		case "v":
			e.Version = int(r.int(1, math.MaxInt32))
		case "features":
			e.Features = r.strings(maxFactors)
		case "factors":
			e.Factors = r.factors()
		case "cache":
			e.Cache = r.description()
		default:
			r.skip()
		}
	}
	return e
}

func (r *reader) factors() map[string]string {
	n := r.object(maxFactors)
	factors := make(map[string]string, n)
	for ; n > 0 && r.err == nil; n-- {
		key := r.str(MaxID)
		factors[key] = r.str(maxFactor)
	}
	return factors
}

func (r *reader) strings(limit int) []string {
	list := make([]string, r.array(limit))
	for i := range list {
		if list[i] = r.str(MaxID); r.err != nil {
			return nil
		}
	}
	return list
}
