# SPDX-License-Identifier: Apache-2.0
"""Real vLLM prefill/decode pairs, and a client for them. Standard library only."""
