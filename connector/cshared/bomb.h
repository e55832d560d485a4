/* Exports of the test build (-tags nixlpush_test) alone; the symbol gate keeps them out of
 * the library that ships. */
#ifndef NIXLPUSH_CSHARED_BOMB_H
#define NIXLPUSH_CSHARED_BOMB_H

#include <stdint.h>

/* Makes the library panic once: 1 in this call; 2 in the loop of the next engine that
 * looks for notifications; 3 in its next writer that makes a request; 4 in its next
 * handshake that loads a peer.
 * Returns: 0; EINTERNAL. */
int32_t nixlpush_test_panic(uint32_t place);

#endif
