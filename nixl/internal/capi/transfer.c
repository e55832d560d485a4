#include "capi.h"

// A range that ends past the address space would pass NIXL's own check, which adds
// start and length.
static int add_desc(const capi_table *t, capi_xfer_list list, const capi_desc *d) {
    if (d->len > UINT64_MAX - d->addr)
        return CAPI_INVALID_PARAM;
    return t->xfer_dlist_add_desc(list, d->addr, d->len, d->dev);
}

static void free_list(const capi_table *t, struct capi_kept *kept) {
    if (kept->list != NULL)
        t->destroy_xfer_dlist(kept->list);
    kept->list = NULL;
}

// Makes a list hold these ranges alone. On failure the caller still frees it.
static int fill(const capi_table *t, struct capi_kept *kept, int mem, const capi_desc *descs,
                size_t n) {
    int status;
    if (kept->list != NULL && kept->mem == mem) {
        status = t->xfer_dlist_clear(kept->list);
    } else {
        free_list(t, kept);
        kept->mem = mem;
        status = t->create_xfer_dlist(mem, &kept->list);
    }
    for (size_t i = 0; i < n && status == CAPI_OK; i++)
        status = add_desc(t, kept->list, &descs[i]);
    return status;
}

// Options that carry the notification, or NULL if there is none.
static int notif_opts(const capi_table *t, const void *notif, size_t len, capi_opts *opts) {
    *opts = NULL;
    if (len == 0)
        return CAPI_OK;
    int status = t->create_opt_args(opts);
    if (status != CAPI_OK)
        return status;
    status = t->opt_args_set_notif_msg(*opts, notif, len);
    if (status == CAPI_OK)
        status = t->opt_args_set_has_notif(*opts, true);
    if (status != CAPI_OK)
        t->destroy_opt_args(*opts);
    return status;
}

int capi_prepare(const capi_table *t, capi_agent agent, const char *name, int mem,
                 const capi_desc *descs, size_t n, capi_prepared *prepared) {
    struct capi_kept kept = {NULL};
    int status = fill(t, &kept, mem, descs, n);
    if (status == CAPI_OK)
        status = t->prep_xfer_dlist(agent, name, kept.list, prepared, NULL);
    free_list(t, &kept);
    if (status != CAPI_NOT_FOUND)
        return status;
    if (*name == '\0')
        return CAPI_LOCAL_UNREGISTERED;
    return t->check_remote_md(agent, name, NULL) == CAPI_OK ? CAPI_REMOTE_UNREGISTERED
                                                            : CAPI_NOT_FOUND;
}

int capi_release_prepared(const capi_table *t, capi_agent agent, capi_prepared prepared) {
    return t->release_xfer_dlist_handle(agent, prepared);
}

int capi_make(const capi_table *t, capi_agent agent, int op, capi_prepared local,
              const int *local_idx, capi_prepared remote, const int *remote_idx, size_t n,
              const void *notif, size_t notif_len, capi_request *request) {
    capi_opts opts;
    int status = notif_opts(t, notif, notif_len, &opts);
    if (status != CAPI_OK)
        return status;
    status =
        t->make_xfer_req(agent, op, local, local_idx, n, remote, remote_idx, n, request, opts);
    if (opts != NULL)
        t->destroy_opt_args(opts);
    return status;
}

// Why create_xfer_req refused two lists: the first of the causes that can be asked for.
static int refusal(const capi_table *t, capi_agent agent, const char *name,
                   capi_xfer_list local, capi_xfer_list remote) {
    capi_prepared prepared;
    if (t->check_remote_md(agent, name, NULL) != CAPI_OK)
        return CAPI_NOT_FOUND;
    if (t->check_remote_md(agent, name, remote) != CAPI_OK)
        return CAPI_REMOTE_UNREGISTERED;
    if (t->prep_xfer_dlist(agent, "", local, &prepared, NULL) != CAPI_OK)
        return CAPI_LOCAL_UNREGISTERED;
    t->release_xfer_dlist_handle(agent, prepared);
    return CAPI_BACKEND;
}

static bool same_lengths(const capi_desc *a, const capi_desc *b, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (a[i].len != b[i].len)
            return false;
    return true;
}

int capi_create(const capi_table *t, capi_agent agent, capi_lists *lists, int op, int mem,
                const capi_desc *local, int remote_mem, const capi_desc *remote, size_t n,
                const char *name, const void *notif, size_t notif_len, capi_request *request) {
    capi_opts opts;
    if (!same_lengths(local, remote, n))
        return CAPI_INVALID_PARAM;
    int status = fill(t, &lists->local, mem, local, n);
    if (status == CAPI_OK)
        status = fill(t, &lists->remote, remote_mem, remote, n);
    if (status == CAPI_OK)
        status = notif_opts(t, notif, notif_len, &opts);
    if (status != CAPI_OK)
        return status;
    capi_xfer_list locals = lists->local.list, remotes = lists->remote.list;
    status = t->create_xfer_req(agent, op, locals, remotes, name, request, opts);
    if (status == CAPI_BACKEND)
        status = refusal(t, agent, name, locals, remotes);
    if (opts != NULL)
        t->destroy_opt_args(opts);
    return status;
}

void capi_free_lists(const capi_table *t, capi_lists *lists) {
    free_list(t, &lists->local);
    free_list(t, &lists->remote);
}

int capi_post(const capi_table *t, capi_agent agent, capi_request request) {
    return t->post_xfer_req(agent, request, NULL);
}

int capi_status(const capi_table *t, capi_agent agent, capi_request request) {
    return t->get_xfer_status(agent, request);
}

int capi_get_telemetry(const capi_table *t, capi_agent agent, capi_request request,
                       capi_telemetry *telemetry) {
    return t->get_xfer_telemetry(agent, request, telemetry);
}

int capi_release(const capi_table *t, capi_agent agent, capi_request request) {
    int status = t->release_xfer_req(agent, request);
    return status == CAPI_OK ? t->destroy_xfer_req(request) : status;
}
