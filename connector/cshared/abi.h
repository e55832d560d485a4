/* What the exports are compiled against: the public header, whose prototypes the compiler
 * compares with the exported functions, and names for const types, which Go lacks. */
#ifndef NIXLPUSH_CSHARED_ABI_H
#define NIXLPUSH_CSHARED_ABI_H

#include "nixlpush.h" /* a link to include/: go build looks for changes in this folder only */

typedef const char const_char;
typedef const void const_void;
typedef const nixlpush_options const_options;
typedef const nixlpush_layout const_layout;
typedef const nixlpush_step const_step;

#endif
