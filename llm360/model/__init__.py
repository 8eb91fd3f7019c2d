"""The two architectures: Amber is transformers' Llama, Crystal is our own class; no remote code."""
