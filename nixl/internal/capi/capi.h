// Checked against NIXL 1.5.1 (libnixl_capi.so of the nixl-cu12 and nixl-cu13 wheels).
//
// NIXL's C API has no version function and its structs carry no size, so these
// declarations hold for that version; the conformance tests prove each new one.
#ifndef NIXLPUSH_CAPI_H
#define NIXLPUSH_CAPI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// What every function returns; the values are NIXL's.
enum {
    CAPI_IN_PROGRESS = 1,
    CAPI_OK = 0,
    CAPI_INVALID_PARAM = -1,
    CAPI_BACKEND = -2,
    CAPI_INVALID_STATE = -3,
    CAPI_EXCEPTION = -4,
    CAPI_NO_TELEMETRY = -5,
    CAPI_NOT_FOUND = -6,
    // Ours: create_xfer_req collapses all its failures to CAPI_BACKEND, so the
    // helpers look for the cause themselves.
    CAPI_LOCAL_UNREGISTERED = -100,
    CAPI_REMOTE_UNREGISTERED = -101,
    CAPI_NO_MEMORY = -102,
};

typedef struct capi_agent *capi_agent;
typedef struct capi_backend *capi_backend;
typedef struct capi_params *capi_params;
typedef struct capi_strings *capi_strings;
typedef struct capi_reg_list *capi_reg_list;
typedef struct capi_xfer_list *capi_xfer_list;
typedef struct capi_prepared *capi_prepared;
typedef struct capi_request *capi_request;
typedef struct capi_opts *capi_opts;
typedef struct capi_notifs *capi_notifs;

typedef struct {
    bool progress_thread;
    bool listen_thread;
    int listen_port;
    int thread_sync; // 0 none, 1 strict, 2 reader-writer
    unsigned workers;
    uint64_t progress_delay_us;
    uint64_t listen_delay_us;
    bool telemetry;
} capi_config;

typedef struct {
    uint64_t start_us;
    uint64_t post_us;
    uint64_t transfer_us;
    uint64_t bytes;
    uint64_t descriptors;
} capi_telemetry;

// The functions used, as X(name, parameters); each returns one of the codes above.
#define CAPI_FUNCTIONS(X)                                                                     \
    X(create_configured_agent, (const char *name, const capi_config *, capi_agent *))         \
    X(destroy_agent, (capi_agent))                                                            \
    X(get_local_md, (capi_agent, void **data, size_t *len))                                   \
    X(load_remote_md, (capi_agent, const void *data, size_t len, char **agent))               \
    X(invalidate_remote_md, (capi_agent, const char *agent))                                  \
    X(check_remote_md, (capi_agent, const char *agent, capi_xfer_list))                       \
    X(agent_make_connection, (capi_agent, const char *agent, capi_opts))                      \
    X(get_available_plugins, (capi_agent, capi_strings *))                                    \
    X(string_list_size, (capi_strings, size_t *))                                             \
    X(string_list_get, (capi_strings, size_t, const char **))                                 \
    X(destroy_string_list, (capi_strings))                                                    \
    X(create_params, (capi_params *))                                                         \
    X(params_add, (capi_params, const char *key, const char *value))                          \
    X(destroy_params, (capi_params))                                                          \
    X(create_backend, (capi_agent, const char *plugin, capi_params, capi_backend *))          \
    X(destroy_backend, (capi_backend))                                                        \
    X(create_reg_dlist, (int mem, capi_reg_list *))                                           \
    X(reg_dlist_add_desc,                                                                     \
      (capi_reg_list, uintptr_t addr, size_t len, uint64_t dev, const void *md, size_t n))    \
    X(destroy_reg_dlist, (capi_reg_list))                                                     \
    X(register_mem, (capi_agent, capi_reg_list, capi_opts))                                   \
    X(deregister_mem, (capi_agent, capi_reg_list, capi_opts))                                 \
    X(create_xfer_dlist, (int mem, capi_xfer_list *))                                         \
    X(xfer_dlist_add_desc, (capi_xfer_list, uintptr_t addr, size_t len, uint64_t dev))        \
    X(xfer_dlist_clear, (capi_xfer_list))                                                     \
    X(destroy_xfer_dlist, (capi_xfer_list))                                                   \
    X(prep_xfer_dlist,                                                                        \
      (capi_agent, const char *agent, capi_xfer_list, capi_prepared *, capi_opts))            \
    X(release_xfer_dlist_handle, (capi_agent, capi_prepared))                                 \
    X(make_xfer_req,                                                                          \
      (capi_agent, int op, capi_prepared local, const int *local_idx, size_t local_n,         \
       capi_prepared remote, const int *remote_idx, size_t remote_n, capi_request *,          \
       capi_opts))                                                                            \
    X(create_xfer_req,                                                                        \
      (capi_agent, int op, capi_xfer_list local, capi_xfer_list remote, const char *agent,    \
       capi_request *, capi_opts))                                                            \
    X(post_xfer_req, (capi_agent, capi_request, capi_opts))                                   \
    X(get_xfer_status, (capi_agent, capi_request))                                            \
    X(get_xfer_telemetry, (capi_agent, capi_request, capi_telemetry *))                       \
    X(release_xfer_req, (capi_agent, capi_request))                                           \
    X(destroy_xfer_req, (capi_request))                                                       \
    X(create_opt_args, (capi_opts *))                                                         \
    X(opt_args_set_notif_msg, (capi_opts, const void *data, size_t len))                      \
    X(opt_args_set_has_notif, (capi_opts, bool))                                              \
    X(destroy_opt_args, (capi_opts))                                                          \
    X(gen_notif, (capi_agent, const char *agent, const void *data, size_t len, capi_opts))    \
    X(create_notif_map, (capi_notifs *))                                                      \
    X(get_notifs, (capi_agent, capi_notifs, capi_opts))                                       \
    X(notif_map_size, (capi_notifs, size_t *))                                                \
    X(notif_map_get_agent_at, (capi_notifs, size_t, const char **agent))                      \
    X(notif_map_get_notifs_size, (capi_notifs, const char *agent, size_t *))                  \
    X(notif_map_get_notif,                                                                    \
      (capi_notifs, const char *agent, size_t, const void **data, size_t *len))               \
    X(destroy_notif_map, (capi_notifs))

typedef struct {
#define CAPI_MEMBER(name, parameters) int(*name) parameters;
    CAPI_FUNCTIONS(CAPI_MEMBER)
#undef CAPI_MEMBER
} capi_table;

// One range of memory, as Go's nixl.Desc.
typedef struct {
    uint64_t addr, len, dev;
} capi_desc;

// NIXL's own form of the two lists of a request, kept from one capi_create to the next:
// a list grows by being copied, which takes longer than filling it. All zero at first.
typedef struct {
    struct capi_kept {
        capi_xfer_list list;
        int mem;
    } local, remote;
} capi_lists;

// Loads the library at path and fills the table. Returns NULL, or what went wrong:
// a malloc'ed text that the caller frees.
char *capi_load(const char *path, capi_table *);

// The rest is one call into NIXL each, or one per array. They return NIXL's codes
// and keep no pointer they are given.

int capi_create_agent(const capi_table *, const char *name, const capi_config *, capi_agent *);
int capi_destroy_agent(const capi_table *, capi_agent);
int capi_create_params(const capi_table *, capi_params *);
int capi_params_add(const capi_table *, capi_params, const char *key, const char *value);
void capi_destroy_params(const capi_table *, capi_params);
int capi_create_backend(const capi_table *, capi_agent, const char *plugin, capi_params,
                        capi_backend *);
void capi_destroy_backend(const capi_table *, capi_backend);
// The names of the plug-ins, one a line: a malloc'ed text that the caller frees, or NULL.
char *capi_plugins(const capi_table *, capi_agent);

int capi_register(const capi_table *, capi_agent, int mem, const capi_desc *, size_t n);
int capi_deregister(const capi_table *, capi_agent, int mem, const capi_desc *, size_t n);

// *data is malloc'ed; the caller frees it.
int capi_local_metadata(const capi_table *, capi_agent, void **data, size_t *len);
// *agent is malloc'ed; the caller frees it.
int capi_load_metadata(const capi_table *, capi_agent, const void *data, size_t len,
                       char **agent);
int capi_unload(const capi_table *, capi_agent, const char *agent);
int capi_connect(const capi_table *, capi_agent, const char *agent);

int capi_prepare(const capi_table *, capi_agent, const char *agent, int mem, const capi_desc *,
                 size_t n, capi_prepared *);
int capi_release_prepared(const capi_table *, capi_agent, capi_prepared);
int capi_make(const capi_table *, capi_agent, int op, capi_prepared local, const int *local_idx,
              capi_prepared remote, const int *remote_idx, size_t n, const void *notif,
              size_t notif_len, capi_request *);
int capi_create(const capi_table *, capi_agent, capi_lists *, int op, int mem,
                const capi_desc *local, int remote_mem, const capi_desc *remote, size_t n,
                const char *agent, const void *notif, size_t notif_len, capi_request *);
void capi_free_lists(const capi_table *, capi_lists *);
int capi_post(const capi_table *, capi_agent, capi_request);
int capi_status(const capi_table *, capi_agent, capi_request);
int capi_get_telemetry(const capi_table *, capi_agent, capi_request, capi_telemetry *);
// Releases a request that is not in progress. On failure the request is still valid.
int capi_release(const capi_table *, capi_agent, capi_request);

int capi_notify(const capi_table *, capi_agent, const char *agent, const void *data, size_t len);
// Drains the notifications into one malloc'ed buffer (NULL if there are none) that the
// caller frees: for each, two uint64_t, the lengths of name and payload, then both.
// Notifications of one sender stand in the order of arrival.
int capi_drain(const capi_table *, capi_agent, void **data, size_t *len);

#endif
