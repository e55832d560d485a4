# SPDX-License-Identifier: Apache-2.0
"""A vLLM engine without a model: its real scheduler, block manager and KV connector, one step at
a time. Runs in processes of its own, with vLLM's Python; `harness.bench` drives it."""
