package notify

import "strings"

// BaseID returns id without the random suffix (a dash and eight hexadecimal digits) that
// each vLLM engine appends. The two legs of a request that came with one X-Request-Id
// have equal base ids. It does not allocate.
func BaseID(id string) string {
	cut := len(id) - 9
	if cut < 0 || id[cut] != '-' {
		return id
	}
	for i := cut + 1; i < len(id); i++ {
		if c := id[i] | 0x20; (c < 'a' || c > 'f') && (id[i] < '0' || id[i] > '9') {
			return id
		}
	}
	return id[:cut]
}

// What vLLM's HTTP endpoints put before a request id.
var endpointPrefixes = []string{"cmpl-", "chatcmpl-", "generate-tokens-"}

// LeaseNames appends to dst the names by which a heartbeat may mean the request that P
// knows as id, the most specific first: id itself; its base id; and, because a router
// that sends both legs at once cannot know more, the X-Request-Id that vLLM made the id
// from. Requests made from one HTTP request (several prompts, n > 1) share that last
// name. A heartbeat means a request if the id it carries is among its names, or else
// the [BaseID] of the id it carries is. The names are parts of id: nothing is allocated
// if dst has room for 4.
//
// vLLM 0.32 builds, from X-Request-Id x and a random r of eight hexadecimal digits:
//
//	/v1/completions       cmpl-x-0-r          0: number of the prompt
//	/v1/chat/completions  chatcmpl-x-r        chatcmpl-x_0-r in a batch
//	/inference/v1/...     generate-tokens-x-r
//	/v1/responses         x_0-r               x: request_id of the body, not the header
//
// and puts "0_" before the id of each of n > 1 samples.
func LeaseNames(dst []string, id string) []string {
	dst = append(dst, id)
	base := BaseID(id)
	if base != id {
		dst = append(dst, base)
	}
	name := base
	if digits := leadingDigits(name); digits > 0 && strings.HasPrefix(name[digits:], "_") {
		name = name[digits+1:]
	}
	for _, prefix := range endpointPrefixes {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			name = rest
			if prefix == "cmpl-" {
				name = cutNumber(name, '-')
			}
			break
		}
	}
	if name != base && name != "" {
		dst = append(dst, name)
	}
	if short := cutNumber(name, '_'); short != name && short != "" {
		dst = append(dst, short)
	}
	return dst
}

func leadingDigits(s string) int {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return i
		}
	}
	return len(s)
}

// cutNumber removes a trailing separator and number.
func cutNumber(s string, separator byte) string {
	i := strings.LastIndexByte(s, separator)
	if i < 0 || i == len(s)-1 || leadingDigits(s[i+1:]) != len(s)-i-1 {
		return s
	}
	return s[:i]
}
