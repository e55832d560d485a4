# SPDX-License-Identifier: Apache-2.0
"""What an older vLLM lacks, with objects that lack it. All other tests of the connector run
with any vLLM from 0.24 on; these run what the installed one does not need."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import need_vllm  # noqa: F401
import pytest
from vllm.distributed.kv_transfer.kv_connector import utils
from vllm.distributed.kv_transfer.kv_connector.v1 import base
from vllm_harness import attention_spec, vllm_config, write_model

from nixlpush.vllm import releases
from nixlpush.vllm.geometry import layers_of, require_supported

GROUP = SimpleNamespace(layer_names=["a", "b"], kv_cache_spec=attention_spec())
OLD_CACHE = SimpleNamespace(kv_cache_groups=[GROUP])


def test_without_a_choice_of_groups_all_are_transferred() -> None:
    assert releases.transfer_groups(OLD_CACHE) == [GROUP]
    assert tuple(releases.transfer_group_ids(OLD_CACHE)) == (0,)


def test_with_a_choice_of_groups_it_is_taken() -> None:
    chosen = SimpleNamespace(
        kv_cache_groups=[GROUP, GROUP],
        transfer_groups=(GROUP,),
        transfer_group_ids=(1,),
    )
    assert releases.transfer_groups(chosen) == (GROUP,)
    assert releases.transfer_group_ids(chosen) == (1,)


def test_an_old_cache_is_supported(tmp_path: Path) -> None:
    require_supported(vllm_config(write_model(tmp_path)), OLD_CACHE)
    two = SimpleNamespace(kv_cache_groups=[GROUP, GROUP])
    assert [layer.group for layer in layers_of(two)] == [0, 0, 1, 1]
    require_supported(vllm_config(write_model(tmp_path)), two)


def test_several_groups_need_a_vllm_that_can_fail_one_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = SimpleNamespace(kv_cache_groups=[GROUP, GROUP])
    monkeypatch.delattr(base, "KVConnectorTransferResults", raising=False)
    with pytest.raises(NotImplementedError, match=r"2 groups .*before vLLM 0\.30"):
        require_supported(vllm_config(write_model(tmp_path)), two)
    require_supported(vllm_config(write_model(tmp_path)), OLD_CACHE)
    require_supported(vllm_config(write_model(tmp_path), kv_role="kv_producer"), two)


def test_the_layout_has_its_old_name_where_vllm_knows_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(releases, "CacheConfig", SimpleNamespace)
    assert releases.heads_first() == "HND"
    monkeypatch.setattr(
        releases, "CacheConfig", SimpleNamespace(get_resolved_kv_cache_layout=None)
    )
    assert releases.heads_first() == "LBHNC"


@pytest.mark.parametrize("size", [16, 32])
def test_the_block_of_the_kernel_divides_the_logical_one(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older releases ask the backends alone, newer ones also the specs of the layers."""
    monkeypatch.delattr(utils, "get_current_attn_backends_and_specs", raising=False)
    asked = []
    monkeypatch.setattr(
        releases.worker_utils,
        "select_common_block_size",
        lambda *arguments: asked.append(arguments) or size,
    )
    backend = SimpleNamespace
    assert releases.kernel_block_size(None, None, [backend], 64) == size
    assert asked == [(64, [backend])]


def test_a_drafter_is_not_asked_where_vllm_cannot_tell() -> None:
    assert releases.prefill_lookahead(SimpleNamespace()) == 0
    assert releases.prefill_lookahead(SimpleNamespace(num_prefill_lookahead_tokens=3)) == 3


def test_a_function_gets_the_arguments_that_it_has() -> None:
    def old(config: object, cross_layers_blocks: bool) -> None: ...
    def new(config: object, transfer_mode: str = "pull") -> None: ...

    both = {"cross_layers_blocks": False, "transfer_mode": "push"}
    assert releases.accepted(old, **both) == {"cross_layers_blocks": False}
    assert releases.accepted(new, **both) == {"transfer_mode": "push"}
