#define _GNU_SOURCE
#include "capi.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct symbol {
    const char *name;
    size_t offset;
};

static const struct symbol symbols[] = {
#define CAPI_SYMBOL(name, parameters) {"nixl_capi_" #name, offsetof(capi_table, name)},
    CAPI_FUNCTIONS(CAPI_SYMBOL)
#undef CAPI_SYMBOL
};

static char *text_of(const char *text) {
    char *copy = strdup(text != NULL ? text : "unknown error");
    return copy != NULL ? copy : strdup("");
}

static char *missing(const char *name) {
    char *text = NULL;
    if (asprintf(&text, "no symbol %s: this is not the library of NIXL 1.5 or newer", name) < 0)
        return text_of("out of memory");
    return text;
}

// dlerror is per thread; one cgo call runs on one thread, so no lock is needed.
char *capi_load(const char *path, capi_table *table) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return text_of(dlerror());
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *address = dlsym(library, symbols[i].name);
        if (address == NULL) {
            dlclose(library);
            return missing(symbols[i].name);
        }
        memcpy((char *)table + symbols[i].offset, &address, sizeof address);
    }
    return NULL;
}
