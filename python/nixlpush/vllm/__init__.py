# SPDX-License-Identifier: Apache-2.0
"""The connector for vLLM: `{"kv_connector": "NixlPushConnector",
"kv_connector_module_path": "nixlpush.vllm", ...}` in `--kv-transfer-config`.

vLLM imports this module in its API server, engine core and workers. Importing it loads
neither the Go library nor NIXL.
"""

from nixlpush.vllm.connector import NixlPushConnector

__all__ = ["NixlPushConnector"]
