# SPDX-License-Identifier: Apache-2.0
"""nixlpush's connector, which changes one block id on the way, in the requests whose id is
`changed-GROUP-...`: P offers another block in place of the group's last. If answers stay equal with
such a request, comparing them proves nothing about that group.

The other one is the block before it, or of another group if the group has only one. A block that is
not of the request would not do: vLLM may have used it for the same tokens when P answered the
prompt alone."""
import itertools
import re

from nixlpush.types import pack_blocks, unpack_ids
from nixlpush.vllm import connector


class NixlPushConnector(connector.NixlPushConnector):
    def start_load_kv(self, forward_context, **kwargs):
        step = self._get_connector_metadata()
        step.offers = tuple(map(_changed, step.offers))
        super().start_load_kv(forward_context, **kwargs)


def _changed(offer):
    match = re.match(r"(?:cmpl-)?changed-(\d+)-", offer.request_id)
    if not match:
        return offer
    ids = iter(unpack_ids(offer.block_ids))
    groups = [list(itertools.islice(ids, count)) for count in unpack_ids(offer.block_counts)]
    group = groups[int(match[1])]
    other = next(ids for ids in (group[:-1], *groups) if ids and ids is not group)
    group[-1] = other[-1]
    block_ids, block_counts = pack_blocks(groups)
    return offer._replace(block_ids=block_ids, block_counts=block_counts)
