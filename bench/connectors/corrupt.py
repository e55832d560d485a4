# SPDX-License-Identifier: Apache-2.0
"""nixlpush's connector with one block id changed on the way: P offers the block after the first
instead of the first. If answers stay equal with this one, comparing them proves nothing."""
from nixlpush.types import unpack_ids, pack_blocks
from nixlpush.vllm import connector


class NixlPushConnector(connector.NixlPushConnector):
    def start_load_kv(self, forward_context, **kwargs):
        step = self._get_connector_metadata()
        step.offers = tuple(map(_changed, step.offers))
        super().start_load_kv(forward_context, **kwargs)


def _changed(offer):
    first, *rest = unpack_ids(offer.block_ids)
    ids, counts = pack_blocks([[first + 1, *rest]])
    return offer._replace(block_ids=ids, block_counts=counts)
