# SPDX-License-Identifier: Apache-2.0
"""nixlpush's connector with one block id changed on the way: P offers its second block in place of
its first. If answers stay equal with this one, comparing them proves nothing.

A block that is not of the request would not do: vLLM may have used it for the same tokens when P
answered the prompt alone."""
from nixlpush.types import unpack_ids, pack_blocks
from nixlpush.vllm import connector


class NixlPushConnector(connector.NixlPushConnector):
    def start_load_kv(self, forward_context, **kwargs):
        step = self._get_connector_metadata()
        step.offers = tuple(map(_changed, step.offers))
        super().start_load_kv(forward_context, **kwargs)


def _changed(offer):
    _, *rest = unpack_ids(offer.block_ids)
    ids, counts = pack_blocks([[rest[0], *rest]])
    return offer._replace(block_ids=ids, block_counts=counts)
