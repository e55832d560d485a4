#include "capi.h"

#include <stdlib.h>
#include <string.h>

int capi_create_agent(const capi_table *t, const char *name, const capi_config *config,
                      capi_agent *agent) {
    return t->create_configured_agent(name, config, agent);
}

int capi_destroy_agent(const capi_table *t, capi_agent agent) { return t->destroy_agent(agent); }

int capi_create_params(const capi_table *t, capi_params *params) {
    return t->create_params(params);
}

int capi_params_add(const capi_table *t, capi_params params, const char *key,
                    const char *value) {
    return t->params_add(params, key, value);
}

void capi_destroy_params(const capi_table *t, capi_params params) { t->destroy_params(params); }

int capi_create_backend(const capi_table *t, capi_agent agent, const char *plugin,
                        capi_params params, capi_backend *backend) {
    return t->create_backend(agent, plugin, params, backend);
}

void capi_destroy_backend(const capi_table *t, capi_backend backend) {
    t->destroy_backend(backend);
}

static char *join(const capi_table *t, capi_strings list, size_t n) {
    size_t size = 1, at = 0;
    const char *name;
    for (size_t i = 0; i < n; i++)
        if (t->string_list_get(list, i, &name) == CAPI_OK)
            size += strlen(name) + 1;
    char *text = malloc(size);
    if (text == NULL)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        if (t->string_list_get(list, i, &name) != CAPI_OK)
            continue;
        size_t len = strlen(name);
        memcpy(text + at, name, len);
        text[at + len] = '\n';
        at += len + 1;
    }
    text[at] = '\0';
    return text;
}

char *capi_plugins(const capi_table *t, capi_agent agent) {
    capi_strings list;
    size_t n = 0;
    if (t->get_available_plugins(agent, &list) != CAPI_OK)
        return NULL;
    char *text = NULL;
    if (t->string_list_size(list, &n) == CAPI_OK)
        text = join(t, list, n);
    t->destroy_string_list(list);
    return text;
}

static int reg_list(const capi_table *t, int mem, const capi_desc *descs, size_t n,
                    capi_reg_list *list) {
    int status = t->create_reg_dlist(mem, list);
    if (status != CAPI_OK)
        return status;
    for (size_t i = 0; i < n && status == CAPI_OK; i++)
        status = t->reg_dlist_add_desc(*list, descs[i].addr, descs[i].len, descs[i].dev, NULL, 0);
    if (status != CAPI_OK)
        t->destroy_reg_dlist(*list);
    return status;
}

// Hands the list to register_mem or deregister_mem.
static int with_reg_list(const capi_table *t, int (*call)(capi_agent, capi_reg_list, capi_opts),
                         capi_agent agent, int mem, const capi_desc *descs, size_t n) {
    capi_reg_list list;
    int status = reg_list(t, mem, descs, n, &list);
    if (status != CAPI_OK)
        return status;
    status = call(agent, list, NULL);
    t->destroy_reg_dlist(list);
    return status;
}

int capi_register(const capi_table *t, capi_agent agent, int mem, const capi_desc *descs,
                  size_t n) {
    return with_reg_list(t, t->register_mem, agent, mem, descs, n);
}

int capi_deregister(const capi_table *t, capi_agent agent, int mem, const capi_desc *descs,
                    size_t n) {
    return with_reg_list(t, t->deregister_mem, agent, mem, descs, n);
}

int capi_local_metadata(const capi_table *t, capi_agent agent, void **data, size_t *len) {
    return t->get_local_md(agent, data, len);
}

int capi_load_metadata(const capi_table *t, capi_agent agent, const void *data, size_t len,
                       char **name) {
    return t->load_remote_md(agent, data, len, name);
}

int capi_unload(const capi_table *t, capi_agent agent, const char *name) {
    return t->invalidate_remote_md(agent, name);
}

int capi_connect(const capi_table *t, capi_agent agent, const char *name) {
    return t->agent_make_connection(agent, name, NULL);
}
