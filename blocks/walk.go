package blocks

import (
	"errors"
	"fmt"
)

// walk says how the two block lists of a group are paired. Lists are in token order.
//
// Both lists end with the block that holds the last token of the request, or of a state
// with its newest. So they are aligned at the end, and the consumer's may begin later (it
// has a prefix in its cache) and so may the producer's, if the group has a window. What
// moves is what both lists hold, in whole units.
//
// If the blocks of both sides have equally many tokens, the ends are the ends of the last
// blocks. If not, the ends differ by a part of a block, which depends on the number of
// tokens; the caller says it. If it does not, the number is derived from the producer's
// list where that is possible: that list then begins at token 0, so that n blocks hold more
// than n-1 blocks of tokens and not more than n. Where this leaves more than one place for
// the consumer's last block, it must be that the consumer's list is as long as it can be,
// and so begins at token 0 too; otherwise ErrTokens is returned. That is, if the consumer's
// block is a multiple of the producer's, lists without a token count are always clear.
//
// The rest of the last block, which holds no tokens yet, moves with them where both sides
// have room for it: that costs nothing, and leaving it out would cut the copy into pieces.
type walk struct {
	groups   uint64 // set of groups whose lists are walked
	src, dst uint64 // tokens that a block id stands for; of a state: blocks
	unit     uint64 // tokens that move together; of a state: 1
	state    bool
}

// ErrTokens means that block lists alone do not say which blocks belong together, because
// the two sides have unequal blocks: the number of tokens is needed.
var ErrTokens = errors.New("the blocks have unequal sizes and the number of tokens of the request is not known")

// maxTokens of a request keeps sums of tokens within 64 bits.
const maxTokens = 1 << 62

// span is n units, counted in each list from its beginning.
type span struct{ src, dst, n uint64 }

// align finds what two lists of so many blocks have in common. tokens is 0 if not known,
// window if there is none.
func (w *walk) align(srcIDs, dstIDs, tokens, window uint64) (span, error) {
	if dstIDs == 0 {
		return span{}, nil
	}
	if w.state && dstIDs == srcIDs+1 {
		// The consumer's last is for the token that it computes itself.
		return span{n: srcIDs * w.src}, nil
	}
	srcEnd, dstEnd, err := w.ends(srcIDs, dstIDs, tokens, window)
	if err != nil {
		return span{}, err
	}
	if srcIDs*w.src > srcEnd || dstIDs*w.dst > dstEnd {
		return span{}, fmt.Errorf("%d source and %d destination blocks of %d and %d tokens are more than a request of %d tokens has",
			srcIDs, dstIDs, w.src, w.dst, tokens)
	}
	srcFirst, dstFirst := srcEnd-srcIDs*w.src, dstEnd-dstIDs*w.dst
	needed := dstFirst
	if window > 0 && tokens > window {
		needed = max(needed, tokens-window)
	}
	if srcFirst > needed {
		return span{}, fmt.Errorf("%d destination blocks of %d tokens need more than the %d source blocks of %d tokens",
			dstIDs, w.dst, srcIDs, w.src)
	}
	first, end := max(srcFirst, dstFirst), min(srcEnd, dstEnd)
	if first >= end {
		return span{}, nil
	}
	return span{(first - srcFirst) / w.unit, (first - dstFirst) / w.unit, (end - first) / w.unit}, nil
}

// ends is where the lists end, in tokens from wherever is convenient.
func (w *walk) ends(srcIDs, dstIDs, tokens, window uint64) (src, dst uint64, err error) {
	switch {
	case tokens > maxTokens:
		return 0, 0, fmt.Errorf("%d tokens", tokens)
	case tokens > 0 && !w.state:
		return ceil(tokens, w.src) * w.src, ceil(tokens, w.dst) * w.dst, nil
	case w.src == w.dst:
		end := max(srcIDs, dstIDs) * w.src
		return end, end, nil
	case window > 0:
		return 0, 0, ErrTokens
	case srcIDs == 0:
		return 0, 0, nil
	}
	src = srcIDs * w.src
	least, most := ceil(src-w.src+1, w.dst), ceil(src, w.dst) // blocks of the consumer
	if least != most && dstIDs < most {
		return 0, 0, ErrTokens
	}
	return src, most * w.dst, nil
}

func ceil(n, per uint64) uint64 { return (n + per - 1) / per }
