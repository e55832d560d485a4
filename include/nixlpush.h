/* nixlpush.h: push the KV cache of a prompt from a prefill engine (P) to a decode engine (D).
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * A worker process opens one engine per (pipeline, tensor) parallel rank, describes its
 * KV cache, and then, once per scheduler step, hands over what changed:
 *
 *   on D   nixlpush_expect   blocks were allocated for a prompt that P computes
 *   on P   nixlpush_offer    a prompt is computed; its blocks may be read
 *
 * The library finds the pair, writes the blocks into D's memory with NIXL WRITE, and
 * reports the end of each expect and each offer as one event, exactly once and in bounded
 * time. All waiting is done by threads of the library.
 *
 * Rules that hold for every function here:
 *
 *  - Threads: every function may be called from any thread at any time, also concurrently
 *    on one handle, unless its comment says otherwise. None blocks longer than its comment
 *    says. None calls back into the caller.
 *  - Fork: a process that has called any function of this library must not call it from a
 *    forked child (the Go runtime has no threads there). exec is fine. Opening in the
 *    child first is fine.
 *  - Pointers passed in are read during the call only; the library copies what it keeps.
 *    Pointers passed out are the caller's buffers. Strings are UTF-8, NUL-terminated;
 *    where NULL is allowed the comment says so, and it means the default.
 *  - Structs begin with struct_size, which the caller sets to sizeof(the struct). Fields
 *    are only ever added at the end; a library reads no further than struct_size and takes
 *    missing fields as zero. Zero always means the default. In an array each entry has its
 *    own struct_size; all are of one size. Structs without one (nixlpush_param,
 *    nixlpush_backend, nixlpush_part, nixlpush_member, nixlpush_memory, nixlpush_blocks)
 *    stay as they are within a major version.
 *  - Returns: 0 or a count on success, a negative NIXLPUSH_E code on failure. If err is not
 *    NULL it receives the text. A wrong handle, a NULL, a short struct or an id out of
 *    range is an error, never a crash.
 *  - A handle is a number, never 0, never used again after close.
 */
#ifndef NIXLPUSH_H
#define NIXLPUSH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this interface: major * 1000 + minor. Equal majors fit together. */
#define NIXLPUSH_ABI_VERSION 1000

typedef uint64_t nixlpush_handle;

/* Error codes. */
#define NIXLPUSH_OK 0
#define NIXLPUSH_EINVAL (-1)     /* an argument is wrong; nothing was done */
#define NIXLPUSH_EHANDLE (-2)    /* no such handle: never opened, or closed */
#define NIXLPUSH_ESTATE (-3)     /* not now: e.g. a step before the cache is registered */
#define NIXLPUSH_ENIXL (-4)      /* NIXL cannot be loaded, or it failed */
#define NIXLPUSH_ENETWORK (-5)   /* e.g. the side channel's port is in use */
#define NIXLPUSH_ESHORT (-6)     /* the buffer is too small; *len says what is needed */
#define NIXLPUSH_EINTERNAL (-7)  /* a defect of nixlpush: it refuses work from now on, while what it
                                    holds can be polled and closed; or the system is out of descriptors */

typedef struct nixlpush_error {
  uint32_t struct_size;
  int32_t code;
  char message[1024];            /* NUL-terminated, cut to fit */
} nixlpush_error;

/* The ABI version of the loaded library. Check it before anything else:
 * nixlpush_abi_version() / 1000 must equal NIXLPUSH_ABI_VERSION / 1000.
 * Returns: the version. Never fails, never blocks. */
uint32_t nixlpush_abi_version(void);

/* The library's own version, e.g. "0.1.0". Static memory, never freed. */
const char *nixlpush_version(void);

/* ---- Engine ---------------------------------------------------------------------- */

typedef struct nixlpush_param {
  const char *key;
  const char *value;
} nixlpush_param;

/* One NIXL backend: "UCX", "LIBFABRIC" (for EFA), or any other that NIXL has a plug-in for. */
typedef struct nixlpush_backend {
  const char *name;
  const nixlpush_param *params;  /* backend-specific; NULL if num_params is 0 */
  uint64_t num_params;
} nixlpush_backend;

typedef struct nixlpush_options {
  uint32_t struct_size;
  uint32_t tp_rank, tp_size;     /* tp_size 0: 1 */
  uint32_t pp_rank, pp_size;     /* pp_size 0: 1 */
  uint32_t side_channel_port;    /* of this engine, as peers shall dial it */
  const char *engine_id;         /* required; the same for all ranks of one engine */
  const char *side_channel_host; /* required */
  const char *nixl_library;      /* path of libnixl_capi.so; NULL: installed wheels, then the loader */
  const char *wheel_root;        /* site-packages folder to look for NIXL's wheel in; NULL: none */
  const nixlpush_backend *backends; /* NULL: UCX */
  uint64_t num_backends;
  const char *compat_hash;       /* must equal the peer's; NULL: "" */
  const nixlpush_param *compat_factors; /* what the hash was made from, for error texts; NULL: unknown */
  uint64_t num_compat_factors;
  uint32_t ignore_compat;        /* 1: a different hash is only logged */
  uint32_t writers;              /* threads that post WRITEs; 0: 2 */
  uint32_t max_procs;            /* Go's GOMAXPROCS, process-wide, first open wins; 0: 4, at most the cores */
  uint32_t lease_ms;             /* of an offer that names none; 0: 30,000 */
  uint32_t receive_timeout_ms;   /* expect to failure; 0: 480,000 */
  uint32_t handshake_timeout_ms; /* per peer; 0: 5,000 */
  uint32_t heartbeat_ms;         /* D to P, keeps leases alive; 0: lease_ms / 6 */
  int64_t peer_ttl_ms;           /* an unused peer is forgotten; 0: 3,600,000; negative: never */
  uint32_t *events_waiting;      /* a word of the caller's that is 1 while events wait and 0 else, so that
                                    a step can look without a call; mapped until the engine is closed; NULL: none */
} nixlpush_options;

/* Loads NIXL, makes an agent with the given backends and starts the engine's threads.
 * Blocks for as long as NIXL takes to bring its backends up (UCX: 0.1 to 2 s).
 * Returns: 0 and *engine; EINVAL, ENIXL (the text lists every place where the library
 * was looked for), EINTERNAL. */
int32_t nixlpush_engine_open(const nixlpush_options *options, nixlpush_handle *engine,
                             nixlpush_error *err);

/* Ends the engine: what is not posted fails, posted WRITEs are waited for (they cannot be
 * cancelled) up to 5 s, then threads end and memory is deregistered. Events not fetched
 * are lost. Blocks up to about 6 s. The event fd is closed. The handle ends in any case.
 * Returns: 0; EHANDLE; ENIXL (e.g. a WRITE has not ended: the memory must stay mapped). */
int32_t nixlpush_engine_close(nixlpush_handle engine, nixlpush_error *err);

/* NIXL's memory types. */
#define NIXLPUSH_DRAM 0u
#define NIXLPUSH_VRAM 1u

/* One component of some layers in each block of a region: an element for each (layer, head,
 * token) of num_rows rows of size bytes, which lie without a gap at
 *
 *   block + offset + (layer - first_layer) * layer_stride + (head - first_head) * head_stride
 *         + token * token_stride + row * row_stride
 *
 * All strides are bytes. Layers and heads are numbered as in the whole model, so that ranks
 * that hold other layers or heads find out what they have in common. What is a token, see
 * nixlpush_region.tokens. Elements of one axis must not overlap. */
typedef struct nixlpush_part {
  const char *component;         /* what it is, by the name that both sides give it: "k", "v", "latent" ... */
  uint64_t offset;               /* of its first element in a block */
  uint64_t size;                 /* bytes of one row of an element; equal on both sides */
  uint32_t first_layer;
  uint32_t num_layers;           /* 0: 1 */
  uint64_t layer_stride;         /* may exceed a block, e.g. if layers lie outside of blocks */
  uint32_t first_head;           /* heads: whatever tensor parallelism deals out, also channels of a state */
  uint32_t num_heads;            /* of this rank; 0: 1 */
  uint32_t heads_of;             /* of the whole model; 1 if all ranks hold the same, as with MLA; 0: 1 */
  uint32_t num_rows;             /* of an element, e.g. its numbers if K is transposed; equal on both
                                    sides; 0: 1 */
  uint64_t row_stride;
  uint64_t head_stride;
  uint64_t token_stride;         /* 0: one element for all tokens of a block, which cannot be divided */
} nixlpush_part;

/* nixlpush_region.tokens: a block holds one state, as with Mamba, instead of tokens. */
#define NIXLPUSH_ONE_STATE 0xffffffffu

/* One strided array of blocks, usually one attention layer. Groups whose layers share memory
 * have regions at the same addresses. */
typedef struct nixlpush_region {
  uint32_t struct_size;
  int32_t group;                 /* group whose block ids index it; -1: every group's */
  uint64_t base;                 /* address of block 0 */
  uint64_t block_len;            /* bytes of one block */
  uint64_t stride;               /* bytes from one block to the next, >= block_len; less only with parts,
                                    e.g. if heads lie outside of blocks */
  uint32_t num_blocks;
  uint32_t mem;                  /* NIXLPUSH_DRAM or NIXLPUSH_VRAM */
  const char *name;              /* of its first layer */
  uint32_t per_id;               /* consecutive blocks that one block id stands for; 0: the layout's
                                    physical_per_logical */
  uint32_t tokens;               /* in a block; 0: the layout's block_size; NIXLPUSH_ONE_STATE */
  uint32_t window;               /* tokens that its layers look back, equal in all regions of a group;
                                    block lists may lack what lies before; 0: all */
  uint32_t reserved;             /* 0 */
  const nixlpush_part *parts;    /* what is in a block, so that a peer may lay it out in another way or
                                    hold other heads, layers, tokens per block; NULL: not known, a
                                    peer's must be just like it */
  uint64_t num_parts;
} nixlpush_region;

/* A layer in a stock region. In a block that has the pages of several layers, which vLLM's
 * connector tells apart by name: where its page lies. Else both numbers are 0. */
typedef struct nixlpush_member {
  const char *name;
  uint64_t offset;
  uint64_t len;                  /* bytes of the page */
} nixlpush_member;

/* A region as vLLM's own connector would cut the same memory and tell peers of it. Peers that
 * run that connector pair such regions by order and name, and know nothing of parts. */
typedef struct nixlpush_stock_region {
  uint32_t struct_size;
  int32_t group;                 /* -1: several groups' block ids lead here */
  uint64_t base;
  uint64_t block_len;
  uint64_t stride;
  uint32_t num_blocks;
  uint32_t mem;
  const char *name;
  const nixlpush_member *members; /* NULL if vLLM's connector names none */
  uint64_t num_members;
} nixlpush_stock_region;

/* Memory to register with NIXL. Every region must lie within one of them. */
typedef struct nixlpush_memory {
  uint64_t addr;
  uint64_t len;
  uint64_t device;               /* ordinal; 0 for DRAM */
  uint32_t mem;
  uint32_t reserved;             /* 0 */
} nixlpush_memory;

typedef struct nixlpush_layout {
  uint32_t struct_size;
  uint32_t block_size;           /* tokens per block of a region */
  uint32_t num_blocks;           /* blocks of a region */
  uint32_t physical_per_logical; /* blocks of a region per block id of a request, unless it says
                                    per_id; 0: 1 */
  uint32_t device_id;
  uint32_t reserved;             /* 0 */
  uint64_t ssm_sizes[2];         /* conv and temporal state, bytes; 0 without such layers */
  const char *name;              /* of the cache layout, e.g. "LBHNC"; both sides must agree */
  const char *attention_backend; /* both sides must agree */
  const nixlpush_region *regions; /* at least one */
  uint64_t num_regions;
  const nixlpush_memory *memory;
  uint64_t num_memory;
  const nixlpush_stock_region *stock_regions; /* what peers that run vLLM's own connector are told;
                                    every region begins in one of them. NULL: the regions as they are */
  uint64_t num_stock_regions;
} nixlpush_layout;

/* Describes and registers the KV cache: once per engine, before the first step. The memory
 * must stay mapped until the engine is closed. Blocks while NIXL registers (pins) it.
 * Returns: 0; EHANDLE, EINVAL, ESTATE (done before), ENIXL. */
int32_t nixlpush_engine_register(nixlpush_handle engine, const nixlpush_layout *layout,
                                 nixlpush_error *err);

/* What a peer needs to know of this rank (vLLM's NixlHandshakePayload, msgpack): publish it
 * on a side channel under (pp_rank, tp_rank). Two-call protocol: *len is set to the length;
 * if cap is less, nothing is copied and ESHORT is returned. buf may be NULL if cap is 0.
 * Returns: 0; EHANDLE, EINVAL, ESTATE (before nixlpush_engine_register), ESHORT, ENIXL. */
int32_t nixlpush_engine_metadata(nixlpush_handle engine, void *buf, uint64_t cap, uint64_t *len,
                                 nixlpush_error *err);

/* ---- One scheduler step ---------------------------------------------------------- */

/* Logical block ids of one request, in token order: the lists of all transfer groups one
 * after another. A list may be empty. */
typedef struct nixlpush_blocks {
  const uint32_t *ids;
  const uint32_t *counts;        /* ids per group */
  uint32_t num_groups;
  uint32_t reserved;             /* 0 */
} nixlpush_blocks;

/* D: KV that a producer will push into blocks of this worker. With blocks.num_groups == 0 it
 * only keeps the producer's lease alive, e.g. while the request waits for free blocks; a later
 * expect with the same tag brings the blocks and starts the deadline. */
typedef struct nixlpush_expect {
  uint32_t struct_size;
  uint32_t producer_port;
  uint32_t producer_tp_size;     /* 0: 1 */
  uint32_t producer_pp_size;     /* 0: 1 */
  uint64_t tag;                  /* the caller's name for it; not in use by another expect or offer */
  const char *request_id;        /* D's id of the request */
  const char *transfer_id;       /* made by the router for both legs; NULL: none */
  const char *remote_request_id; /* P's id of the request; NULL: unknown */
  const char *producer_engine_id;
  const char *producer_host;
  nixlpush_blocks blocks;
} nixlpush_expect;

/* P: the finished blocks of a request. They must not change until the event.
 * Both sides' lists of a group end with the same token; D's may begin later. */
typedef struct nixlpush_offer {
  uint32_t struct_size;
  uint32_t lease_ms;             /* 0: the engine's */
  uint64_t tag;
  const char *request_id;        /* P's id of the request */
  const char *transfer_id;       /* NULL: none */
  nixlpush_blocks blocks;
  uint64_t tokens;               /* of the request in blocks, from its first one on; 0: unknown, which will do
                                    unless P's and D's blocks hold unequal numbers of tokens */
} nixlpush_offer;

typedef struct nixlpush_step {
  uint32_t struct_size;
  uint32_t reserved;             /* 0 */
  const nixlpush_expect *expects;
  uint64_t num_expects;
  const nixlpush_offer *offers;
  uint64_t num_offers;
  const uint64_t *cancels;       /* tags. An expect without blocks ends at once, without an event; */
  uint64_t num_cancels;          /* all else ends with its event, when its blocks are safe */
} nixlpush_step;

/* Hands over what changed in one scheduler step. All or nothing: if an entry is wrong, none
 * is taken and the text names it. A cancel of an unknown tag is not an error (the event may
 * be on its way). Does not block: tens of microseconds for thousands of block ids.
 * Returns: 0; EHANDLE, EINVAL, ESTATE, EINTERNAL. */
int32_t nixlpush_submit(nixlpush_handle engine, const nixlpush_step *step, nixlpush_error *err);

/* ---- Events ---------------------------------------------------------------------- */

#define NIXLPUSH_SENT 1u           /* offer: written; its blocks may be freed */
#define NIXLPUSH_SEND_FAILED 2u    /* offer: not (wholly) written; its blocks may be freed */
#define NIXLPUSH_RECEIVED 3u       /* expect: every byte has landed */
#define NIXLPUSH_RECEIVE_FAILED 4u /* expect: the blocks hold nothing of use and may be freed */

#define NIXLPUSH_REASON_NONE 0u
#define NIXLPUSH_REASON_DEADLINE 1u      /* the producer did not write in time */
#define NIXLPUSH_REASON_LEASE_EXPIRED 2u /* no consumer registered in time */
#define NIXLPUSH_REASON_UNREACHABLE 3u   /* the handshake with the peer failed */
#define NIXLPUSH_REASON_INCOMPATIBLE 4u  /* the peer's hash, identity or cache does not fit */
#define NIXLPUSH_REASON_WRITE_FAILED 5u
#define NIXLPUSH_REASON_CANCELLED 6u
#define NIXLPUSH_REASON_CLOSED 7u
#define NIXLPUSH_REASON_INTERNAL 8u

typedef struct nixlpush_event {
  uint64_t tag;
  uint32_t kind;
  uint32_t reason;
  /* Of an offer that was sent: */
  uint64_t bytes;
  uint64_t descriptors;          /* after merging */
  uint64_t block_pairs;          /* before merging: blocks times regions */
  uint64_t post_ns;              /* in NIXL's post calls */
  uint64_t write_ns;             /* from post to the end of the last WRITE */
  uint64_t match_ns;             /* from the later of offer and registration to the post */
  char message[256];             /* of a failure; NUL-terminated, cut to fit */
} nixlpush_event;

/* A descriptor that is readable while events wait (an eventfd; poll or epoll it, do not
 * read, write or close it). Belongs to the engine.
 * Returns: the descriptor; EHANDLE. */
int32_t nixlpush_event_fd(nixlpush_handle engine, nixlpush_error *err);

/* Fetches up to cap events, oldest first. event_size is sizeof(nixlpush_event). Never blocks.
 * Returns: how many; EHANDLE, EINVAL. */
int32_t nixlpush_poll(nixlpush_handle engine, nixlpush_event *events, uint64_t cap,
                      uint64_t event_size, nixlpush_error *err);

/* ---- Side channel ---------------------------------------------------------------- */

/* Serves the metadata of all ranks of an engine to its peers: vLLM's ZeroMQ handshake
 * (ROUTER). Binds tcp://host:port; port 0 picks a free one. One per engine, in any process
 * of it.
 * Returns: 0 and *channel; EINVAL, ENETWORK (e.g. the port is in use). */
int32_t nixlpush_sidechannel_open(const char *host, uint32_t port, nixlpush_handle *channel,
                                  nixlpush_error *err);

/* The port it is bound to.
 * Returns: the port; EHANDLE. */
int32_t nixlpush_sidechannel_port(nixlpush_handle channel, nixlpush_error *err);

/* Publishes (or replaces) what nixlpush_engine_metadata gave for one rank.
 * Returns: 0; EHANDLE, EINVAL. */
int32_t nixlpush_sidechannel_publish(nixlpush_handle channel, uint32_t pp_rank, uint32_t tp_rank,
                                     const void *metadata, uint64_t len, nixlpush_error *err);

/* Stops serving and frees the port. Blocks up to 1 s.
 * Returns: 0; EHANDLE. */
int32_t nixlpush_sidechannel_close(nixlpush_handle channel, nixlpush_error *err);

/* ---- Observing ------------------------------------------------------------------- */

typedef struct nixlpush_stats {
  uint32_t struct_size;
  uint32_t reserved;
  /* Held right now. */
  uint64_t expects;              /* announced or waiting for KV */
  uint64_t offers;               /* waiting for a registration, or being written */
  uint64_t registrations;        /* of consumers, not matched yet */
  uint64_t writes;               /* posted and not ended */
  uint64_t peers;
  uint64_t events;               /* not fetched yet */
  uint64_t goroutines;           /* of the process */
  uint64_t heap_bytes;           /* of the Go heap */
  /* Since open. */
  uint64_t offer_first;          /* rendezvous in which the offer came first */
  uint64_t registration_first;   /* and in which the registration did */
  uint64_t sent;
  uint64_t send_failed;
  uint64_t received;
  uint64_t receive_failed;
  uint64_t bytes;
  uint64_t descriptors;
  uint64_t block_pairs;
  uint64_t failed_transfers;
  uint64_t failed_notifications;
  uint64_t failed_handshakes;
  uint64_t expired_offers;
  uint64_t notifications_after_end; /* completions for requests that had ended */
  uint64_t malformed_notifications;
  uint64_t heartbeats_sent;
  uint64_t heartbeats_received;
  uint64_t leases_renewed;
} nixlpush_stats;

/* Fills stats (set its struct_size). Never blocks.
 * Returns: 0; EHANDLE, EINVAL. */
int32_t nixlpush_engine_stats(nixlpush_handle engine, nixlpush_stats *stats, nixlpush_error *err);

/* How many handles are open in this process, of both kinds. */
uint64_t nixlpush_open_handles(void);

/* A descriptor that is readable while log lines wait; like nixlpush_event_fd, and of the process.
 * Returns: the descriptor; EINTERNAL. */
int32_t nixlpush_log_fd(void);

/* Moves waiting log lines into buf: each "<level>\t<text>\n", level 10 debug, 20 info, 30
 * warning, 40 error (Python's numbers). Whole lines only; not NUL-terminated. The library never
 * writes to stdout or stderr. At most 4,096 lines are kept; then the oldest are dropped and
 * counted in a line of their own. A line is cut to fit a buffer of 8 KiB.
 * Returns: bytes written, 0 if none wait; EINVAL, ESHORT (the next line does not fit cap). */
int32_t nixlpush_drain_log(char *buf, uint64_t cap);

/* Lines below this level, 0 to 100, are not kept. Default 20.
 * Returns: 0; EINVAL, EINTERNAL. */
int32_t nixlpush_log_level(int32_t level);

#ifdef __cplusplus
}
#endif
#endif /* NIXLPUSH_H */
