package blocks

import "fmt"

// TrimToSuffix cuts the producer's block lists to what the consumer asked for. A consumer
// that has the start of the prompt in its prefix cache asks for the tail only, so per
// group the last len(want) blocks of have are the ones that correspond. The result shares
// have's memory.
func TrimToSuffix(have, want [][]uint32) ([][]uint32, error) {
	if len(have) != len(want) {
		return nil, fmt.Errorf("producer has %d block groups, consumer asked for %d", len(have), len(want))
	}
	trimmed := make([][]uint32, len(have))
	for g := range have {
		surplus := len(have[g]) - len(want[g])
		if surplus < 0 {
			return nil, fmt.Errorf("group %d: producer has %d blocks, consumer asked for %d", g, len(have[g]), len(want[g]))
		}
		trimmed[g] = have[g][surplus:]
	}
	return trimmed, nil
}
