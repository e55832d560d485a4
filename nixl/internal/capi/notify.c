#include "capi.h"

#include <stdlib.h>
#include <string.h>

int capi_notify(const capi_table *t, capi_agent agent, const char *name, const void *data,
                size_t len) {
    // NIXL builds a string from the pointer, which must not be NULL even if empty.
    return t->gen_notif(agent, name, len > 0 ? data : "", len, NULL);
}

typedef struct {
    char *data;
    size_t len, cap;
} buffer;

static char *extend(buffer *b, size_t n) {
    if (b->cap - b->len < n) {
        size_t cap = 2 * b->cap + n;
        char *data = realloc(b->data, cap);
        if (data == NULL)
            return NULL;
        b->data = data;
        b->cap = cap;
    }
    char *at = b->data + b->len;
    b->len += n;
    return at;
}

static int append(buffer *b, const char *name, const void *payload, size_t payload_len) {
    uint64_t lengths[2] = {strlen(name), payload_len};
    char *at = extend(b, sizeof lengths + lengths[0] + lengths[1]);
    if (at == NULL)
        return CAPI_NO_MEMORY;
    memcpy(at, lengths, sizeof lengths);
    memcpy(at + sizeof lengths, name, lengths[0]);
    memcpy(at + sizeof lengths + lengths[0], payload, payload_len);
    return CAPI_OK;
}

// A name with a NUL inside cannot be asked for through this API; NIXL's own agents
// have none, so what such a sender sent is dropped.
static int append_sender(const capi_table *t, capi_notifs map, size_t index, buffer *b) {
    const char *name;
    const void *payload;
    size_t n, len;
    if (t->notif_map_get_agent_at(map, index, &name) != CAPI_OK)
        return CAPI_OK;
    if (t->notif_map_get_notifs_size(map, name, &n) != CAPI_OK)
        return CAPI_OK;
    for (size_t i = 0; i < n; i++) {
        int status = t->notif_map_get_notif(map, name, i, &payload, &len);
        if (status == CAPI_OK)
            status = append(b, name, payload, len);
        if (status != CAPI_OK)
            return status;
    }
    return CAPI_OK;
}

int capi_drain(const capi_table *t, capi_agent agent, void **data, size_t *len) {
    capi_notifs map;
    buffer b = {NULL, 0, 0};
    size_t senders = 0;
    int status = t->create_notif_map(&map);
    if (status != CAPI_OK)
        return status;
    status = t->get_notifs(agent, map, NULL);
    // One backend's failure does not lose what the others delivered.
    t->notif_map_size(map, &senders);
    for (size_t i = 0; i < senders; i++) {
        int appended = append_sender(t, map, i, &b);
        if (status == CAPI_OK)
            status = appended;
    }
    t->destroy_notif_map(map);
    *data = b.data;
    *len = b.len;
    return status;
}
