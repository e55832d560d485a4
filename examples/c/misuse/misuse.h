/* misuse.h: how the checks of misuse.c judge a call, and the right arguments that they spoil.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef MISUSE_H
#define MISUSE_H

#include <stdint.h>

#include "nixlpush.h"

enum { BLOCKS = 8, BLOCK_LEN = 4096, HUGE_COUNT = 0x7fffffff };

extern nixlpush_error err;    /* of the last call */
extern const char *library;   /* the path of libnixl_capi.so; NULL: the loader's */

/* Judges one call: its code, and whether the text speaks of what is wrong. */
void judge(const char *file, int line, const char *call, int32_t got, int32_t wanted, const char *text);
void clear_error(void);

/* WANT(call, code, text): the call returns the code, and err's message contains the text. */
#define WANT(call, wanted, text)                                          \
  do {                                                                    \
    clear_error();                                                        \
    judge(__FILE__, __LINE__, #call, (int32_t)(call), wanted, text);      \
  } while (0)

/* EXPECT(condition): it holds. */
#define EXPECT(condition)                                                 \
  do {                                                                    \
    clear_error();                                                        \
    judge(__FILE__, __LINE__, #condition, (condition) ? 0 : 1, 0, "");    \
  } while (0)

/* What is right: the checks copy it and change one thing. A layout points to the region. */
nixlpush_options good_options(void);
nixlpush_region good_region(void);
nixlpush_part good_part(void); /* of a good region with two heads */
nixlpush_layout good_layout(const nixlpush_region *region);
nixlpush_expect good_expect(uint64_t tag);
nixlpush_offer good_offer(uint64_t tag);
int32_t submit(nixlpush_handle engine, const nixlpush_expect *expects, uint64_t num_expects,
               const nixlpush_offer *offers, uint64_t num_offers);
void pause_ms(int ms);

void bad_options(void);
void bad_layouts(nixlpush_handle engine); /* before its cache is registered */
void bad_steps(nixlpush_handle engine);   /* after */
void odd_steps(nixlpush_handle engine);

#endif
